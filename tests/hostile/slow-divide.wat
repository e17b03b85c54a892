;; both: fuel at loop. Divisions of 64 bits, each of the remainder of the one before.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $x i64)
        (local.set $x (i64.const 0x7fffffffffffffff))
        (loop $again
            (local.set $x (i64.or (i64.const 0x7000000000000001)
                (i64.rem_u (i64.const 0x8fffffffffffffff) (local.get $x))))
            (br $again))
        (unreachable)))
