;; Messages in and out, at and beyond their ends, changed before a stop.
(module
  (import "ashway" "msg_load64be" (func $load (param i32) (result i64)))
  (import "ashway" "msg_store64le" (func $store (param i32 i64)))
  (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
  (import "ashway" "msg_write" (func $write (param i32 i32 i32)))
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call $read (i32.const 0) (i32.const 100) (local.get $len))
    (call $store (i32.const 1) (call $load (i32.sub (local.get $len) (i32.const 8))))
    (call $write (i32.const 16) (i32.const 100) (i32.const 32))
    (call $store (i32.sub (local.get $len) (i32.load8_u (i32.const 100))) (i64.const -1))
    (i32.const 1)))
