;; both: fuel at loop. Counts to 2^63: ends, but not in the age of the universe.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $i i64)
        (loop $again
            (br_if $again (i64.gt_s
                (local.tee $i (i64.add (local.get $i) (i64.const 1)))
                (i64.const 0))))
        (i32.const 0)))
