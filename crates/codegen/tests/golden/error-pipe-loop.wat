;; A function that is to be a pipe, and has a loop.
(module
  (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call $in_place (i32.const 0) (i32.const 64) (i32.const 0))
    (i32.const 0))
  (func (export "spin") (param i32) (result i32)
    (loop $again (br $again))
    (local.get 0))
  (@custom "ashway.pipes" "spin:8"))
