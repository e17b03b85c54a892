;; A list of pipes that names what there is not.
(module
  (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call $in_place (i32.const 0) (i32.const 64) (i32.const 0))
    (i32.const 0))
  (@custom "ashway.pipes" "cksum16 | cheksum32"))
