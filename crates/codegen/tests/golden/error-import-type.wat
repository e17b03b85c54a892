;; A host call of another type.
(module
  (import "ashway" "msg_load8" (func $load8 (param i64) (result i32)))
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call $load8 (i64.const 0))))
