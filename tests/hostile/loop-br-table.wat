;; both: fuel at loop. Jumps back by a table, with an index that no CPU foresees.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $x i32)
        (loop $a (loop $b (loop $c
            (local.set $x (i32.add
                (i32.mul (local.get $x) (i32.const 1664525)) (i32.const 1013904223)))
            (br_table $a $b $c $b $a $c $b (i32.shr_u (local.get $x) (i32.const 29))))))
        (unreachable)))
