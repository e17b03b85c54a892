;; A table that nothing changes is a tree of direct calls.
(module
  (memory (export "memory") 1 1)
  (type $op (func (param i32) (result i32)))
  (table 4 funcref)
  (elem (i32.const 0) $double $nothing $triple)
  (func $double (param $x i32) (result i32)
    (i32.add (local.get $x) (local.get $x)))
  (func $triple (param $x i32) (result i32)
    (i32.mul (local.get $x) (i32.const 3)))
  (func $nothing)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call_indirect (type $op) (local.get $len) (i32.const 2))
    (call_indirect (type $op) (local.get $len))))
