;; both: table_bounds at table.set. A reference put at place -1.
(module
    (table $t 4 4 funcref)
    (elem (table $t) (i32.const 1) func $nothing $number)
    (func $nothing)
    (func $number (result i32) (i32.const 0))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (table.set $t (i32.const -1) (ref.null func))
        (i32.const 0)))
