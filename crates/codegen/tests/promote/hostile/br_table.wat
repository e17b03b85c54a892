;; Jumps that no CPU foresees.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param i32 i32) (result i32)
        (local $x i32)
        (local.set $x (i32.const 12345))
        (loop $again
            (local.set $x (i32.add (i32.mul (local.get $x) (i32.const 1664525)) (i32.const 1013904223)))
            (block $a (block $b (block $c (block $d
                (br_table $a $b $again $c $d $b $c $a $d (i32.shr_u (local.get $x) (i32.const 28))))
                (br $again)) (br $again)) (br $again))
            (br $again))
        (unreachable)))
