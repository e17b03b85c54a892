;; both: consume. Grows a table by -1, which are 2^32 - 1 entries: refused with -1, and the table is as it was.
(module
    (table $t 4 100 funcref)
    (elem (table $t) (i32.const 1) func $nothing $number)
    (func $nothing)
    (func $number (result i32) (i32.const 0))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (if (i32.ne (table.grow $t (ref.null func) (i32.const -1)) (i32.const -1)) (then (unreachable)))
        (if (i32.ne (table.size $t) (i32.const 4)) (then (unreachable)))
        (i32.const 0)))
