;; both: fuel. A loop that is entered and left at its first turn, in a function that is called for ever.
(module
    (func $turn (local $i i32)
        (loop $once
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $once (i32.lt_u (local.get $i) (i32.const 1)))))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again (call $turn) (br $again))
        (unreachable)))
