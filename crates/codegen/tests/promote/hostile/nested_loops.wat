;; Loops in loops.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param i32 i32) (result i32)
        (local $i i32) (local $j i32)
        (loop $outer
            (local.set $j (i32.const 3))
            (loop $inner
                (local.set $i (i32.add (local.get $i) (local.get $j)))
                (br_if $inner (local.tee $j (i32.sub (local.get $j) (i32.const 1)))))
            (br $outer))
        (unreachable)))
