;; both: fuel at loop. Branches back from the middle of a turn, so that what the rest would cost is never done.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $i i32)
        (loop $again
            (block $rest
                (br_if $again (i32.ge_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 0)))
                (br $rest))
            (local.set $i (i32.div_u (local.get $i) (i32.const 3)))
            (br $again))
        (unreachable)))
