;; Five locals in registers at once, and a sixth that takes over when one dies.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (local $i i32)
    (local $a i32)
    (local $b i32)
    (local $c i32)
    (local $last i32)
    (local.set $b (i32.const 1))
    (loop $next
      (local.set $c (i32.add (local.get $a) (local.get $b)))
      (local.set $a (local.get $b))
      (local.set $b (i32.xor (local.get $c) (local.get $len)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $i) (local.get $len))))
    (local.set $last (i32.mul (local.get $b) (local.get $b)))
    (i32.add (local.get $last) (i32.shr_u (local.get $last) (i32.const 16)))))
