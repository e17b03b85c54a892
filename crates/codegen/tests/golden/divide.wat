;; Division traps where eBPF gives 0 or wraps.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (local $a i32)
    (local.set $a (i32.div_u (i32.const 1000) (local.get $len)))
    (local.set $a (i32.rem_u (local.get $a) (i32.const 10)))
    (local.set $a (i32.div_s (local.get $a) (local.get $len)))
    (i32.rem_s (local.get $a) (local.get $len))))
