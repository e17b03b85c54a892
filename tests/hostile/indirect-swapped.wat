;; both: indirect_call at call_indirect. Exchanges two entries of different types while they are in use.
(module
    (table $t 4 4 funcref)
    (elem (table $t) (i32.const 1) func $nothing $number)
    (func $nothing)
    (func $number (result i32) (i32.const 0))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $f funcref)
        (local.set $f (table.get $t (i32.const 1)))
        (table.set $t (i32.const 1) (table.get $t (i32.const 2)))
        (table.set $t (i32.const 2) (local.get $f))
        (call_indirect $t (result i32) (i32.const 2))))
