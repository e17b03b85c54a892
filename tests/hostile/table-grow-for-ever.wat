;; both: fuel at loop. Grows a table until it does not grow any more, and goes on asking.
(module
    (table $t 1 100 funcref)
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again
            (drop (table.grow $t (ref.null func) (i32.const 1)))
            (br $again))
        (unreachable)))
