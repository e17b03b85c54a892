;; both: consume, then unreachable, then consume, then unreachable. Falls over with every second message, to stay below any count of faults in a row.
(module
    (global $n (mut i32) (i32.const 0))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (global.set $n (i32.xor (global.get $n) (i32.const 1)))
        (if (i32.eqz (global.get $n)) (then (unreachable)))
        (i32.const 0)))
