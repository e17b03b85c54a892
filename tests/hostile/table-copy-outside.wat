;; both: table_bounds at table.copy. A copy between tables of different lengths, as long as the longer one.
(module
    (table $t 4 4 funcref)
    (elem (table $t) (i32.const 1) func $nothing $number)
    (func $nothing)
    (func $number (result i32) (i32.const 0))
    (table $u 2 2 funcref)
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (table.copy $u $t (i32.const 0) (i32.const 0) (i32.const 4))
        (i32.const 0)))
