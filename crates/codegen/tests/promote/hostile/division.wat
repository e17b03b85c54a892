;; Divisions, each of the result of the one before it.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param i32 i32) (result i32)
        (local $x i64)
        (local.set $x (i64.const 0x7fffffffffffffff))
        (loop $again
            (local.set $x (i64.or (i64.const 0x7000000000000001)
                (i64.rem_u (i64.const 0x8fffffffffffffff) (local.get $x))))
            (br $again))
        (unreachable)))
