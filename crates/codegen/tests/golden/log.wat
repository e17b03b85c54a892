;; A line.
(module
  (import "ashway" "log" (func $log (param i32 i32)))
  (memory (export "memory") 1 1)
  (data (i32.const 16) "hello")
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call $log (i32.const 16) (i32.const 5))
    (i32.const 0)))
