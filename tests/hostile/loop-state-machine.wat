;; both: fuel at loop. Two loops that are one: a switch in a loop sends each state to the other, as an irreducible graph is compiled.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $state i32)
        (loop $next
            (block $one (block $zero
                (br_table $zero $one (local.get $state)))
                (local.set $state (i32.const 1)) (br $next))
            (local.set $state (i32.const 0)) (br $next))
        (unreachable)))
