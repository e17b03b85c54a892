;; both: fuel at loop. Counts zeros and ones, for which the kernel tier has no instruction.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $x i64)
        (loop $again
            (local.set $x (i64.add (i64.const 0x9e3779b97f4a7c15)
                (i64.mul (i64.clz (local.get $x))
                    (i64.add (i64.ctz (local.get $x)) (i64.popcnt (local.get $x))))))
            (br $again))
        (unreachable)))
