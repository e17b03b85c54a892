;; A host call is a message access, not a function.
(module
  (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
  (memory (export "memory") 1 1)
  (table 1 funcref)
  (elem (i32.const 0) $load8)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call_indirect (param i32) (result i32) (local.get $len) (i32.const 0))))
