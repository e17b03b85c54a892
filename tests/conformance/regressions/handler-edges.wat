;; Message accesses at and behind the end, and a check on one way that must not
;; count for the other.
(module
  (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
  (import "ashway" "msg_load64le" (func $load64 (param i32) (result i64)))
  (import "ashway" "msg_store8" (func $store8 (param i32 i32)))
  (import "ashway" "msg_store16be" (func $store16 (param i32 i32)))
  (memory (export "memory") 1 1)
  (global $turn (mut i32) (i32.const 0))
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (global.set $turn (i32.add (global.get $turn) (i32.const 1)))
    (i64.store (i32.const 0) (call $load64 (i32.sub (local.get $len) (i32.const 8))))
    (if (i32.and (global.get $turn) (i32.const 1))
      (then (i64.store (i32.const 8) (call $load64 (i32.const 100)))))
    ;; Seen above on one way only.
    (i32.store8 (i32.const 16) (call $load8 (i32.const 100)))
    (if (i32.and (global.get $turn) (i32.const 2))
      (then (call $store8 (i32.sub (local.get $len) (i32.const 1)) (i32.const 90)))
      (else (call $store16 (i32.sub (local.get $len) (i32.const 1)) (i32.const 91))))
    (i32.const 1)))
