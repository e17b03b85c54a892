;; both: table_bounds at table.fill. Three entries filled, of which two are there: none is.
(module
    (table $t 4 4 funcref)
    (elem (table $t) (i32.const 1) func $nothing $number)
    (func $nothing)
    (func $number (result i32) (i32.const 0))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (table.fill $t (i32.const 2) (ref.null func) (i32.const 3))
        (i32.const 0)))
