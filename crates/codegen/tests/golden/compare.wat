;; A comparison that is only jumped on is one jump; others are computed.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (local $a i32)
    (block $short
      (br_if $short (i32.lt_u (local.get $len) (i32.const 8)))
      (br_if $short (i32.eqz (i32.gt_s (local.get $len) (i32.const 64))))
      (if (i32.eq (local.get $len) (local.get $a))
        (then (local.set $a (i32.const 1)))
        (else (local.set $a (i32.const 2)))))
    (local.set $a (select (local.get $a) (local.get $len) (i32.ge_u (local.get $a) (local.get $len))))
    (i32.add (i32.lt_u (local.get $a) (local.get $len)) (i32.le_s (local.get $a) (local.get $len)))))
