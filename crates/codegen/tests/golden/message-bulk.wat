;; Between message and memory.
(module
  (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call $read (i32.const 0) (i32.const 256) (local.get $len))
    (i32.const 2)))
