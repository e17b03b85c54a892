;; both: fuel at loop. Three loops in each other; each turn alone is short.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $j i32) (local $k i32)
        (loop $a
            (local.set $j (i32.const 0))
            (loop $b
                (local.set $k (i32.const 0))
                (loop $c
                    (br_if $c (i32.lt_u
                        (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 3))))
                (br_if $b (i32.lt_u
                    (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 3))))
            (br $a))
        (unreachable)))
