;; Constants, locals in registers, and results made where they are wanted.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (local $a i32)
    (local $b i64)
    (local.set $a (i32.add (local.get $len) (i32.const 7)))
    (local.set $a (i32.sub (i32.const 100) (local.get $a)))
    (local.set $b (i64.mul (i64.extend_i32_u (local.get $a)) (i64.const 0x123456789)))
    (local.set $b (i64.xor (i64.shr_u (local.get $b) (i64.const 7)) (local.get $b)))
    (i32.and (i32.wrap_i64 (local.get $b)) (i32.shl (local.get $a) (local.get $len)))))
