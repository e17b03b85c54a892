;; array: offsets that are not constant go through a helper.
(module
  (import "ashway" "msg_load32be" (func $load32 (param i32) (result i32)))
  (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
  (import "ashway" "msg_store16be" (func $store16 (param i32 i32)))
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (local $a i32)
    (local.set $a (call $load32 (i32.const 4)))
    (local.set $a (i32.add (local.get $a) (call $load8 (i32.const 2))))
    (local.set $a (i32.add (local.get $a) (call $load8 (local.get $a))))
    (call $store16 (i32.const 0) (local.get $a))
    (local.get $a)))
