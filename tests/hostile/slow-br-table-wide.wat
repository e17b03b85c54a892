;; both: fuel at loop. A switch of 4,000 ways, taken again and again, at the price of one.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $x i32)
        (loop $again
            (local.set $x (i32.add (i32.mul (local.get $x) (i32.const 1664525)) (i32.const 1013904223)))
            (block $b (block $a
                (br_table
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b $a $b
                    $a (i32.shr_u (local.get $x) (i32.const 20))))
                (br $again))
            (br $again))
        (unreachable)))
