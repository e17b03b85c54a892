;; both: table_bounds at table.init. A segment of references that was dropped.
(module
    (table $t 4 4 funcref)
    (elem (table $t) (i32.const 1) func $nothing $number)
    (func $nothing)
    (func $number (result i32) (i32.const 0))
    (elem $e func $number)
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (elem.drop $e)
        (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))
        (i32.const 0)))
