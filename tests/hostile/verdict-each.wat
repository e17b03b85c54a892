;; both: consume, then reply, then deliver, then pass, then forward, then drop, then abort, then bad_verdict. A counter for a verdict.
(module
    (global $n (mut i32) (i32.const -1))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (global.set $n (i32.add (global.get $n) (i32.const 1)))
        (global.get $n)))
