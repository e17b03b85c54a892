;; both: fuel. Copies a table of 10,000 entries one place further, for ever.
(module
    (table 10000 10000 funcref)
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again
            (table.copy (i32.const 1) (i32.const 0) (i32.const 9999))
            (br $again))
        (unreachable)))
