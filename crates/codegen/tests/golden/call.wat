;; A function with two callers returns by number, one with one jumps back.
(module
  (memory (export "memory") 1 1)
  (func $square (param $x i32) (result i32)
    (i32.mul (local.get $x) (local.get $x)))
  (func $once (param $x i32) (result i32)
    (i32.add (call $square (local.get $x)) (local.get $x)))
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (i32.add (call $square (local.get $len)) (call $once (i32.const 9)))))
