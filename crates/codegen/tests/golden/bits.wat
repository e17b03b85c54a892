;; What eBPF has no instruction for.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (local $a i32)
    (local.set $a (i32.rotl (local.get $len) (i32.const 5)))
    (local.set $a (i32.rotr (local.get $a) (local.get $len)))
    (local.set $a (i32.add (local.get $a) (i32.clz (local.get $len))))
    (local.set $a (i32.add (local.get $a) (i32.ctz (local.get $len))))
    (local.set $a (i32.add (local.get $a) (i32.popcnt (local.get $len))))
    (i32.extend8_s (local.get $a))))
