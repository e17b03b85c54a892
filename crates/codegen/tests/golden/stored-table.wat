;; A table that something changes lies in the state region.
(module
  (memory (export "memory") 1 1)
  (type $op (func (param i32) (result i32)))
  (table $t 4 funcref)
  (elem (i32.const 0) $double $triple)
  (func $double (param $x i32) (result i32)
    (i32.add (local.get $x) (local.get $x)))
  (func $triple (param $x i32) (result i32)
    (i32.mul (local.get $x) (i32.const 3)))
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (table.set $t (i32.const 3) (table.get $t (local.get $len)))
    (call_indirect $t (type $op) (local.get $len) (i32.const 3))))
