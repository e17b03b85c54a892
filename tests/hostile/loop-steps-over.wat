;; both: fuel at loop. Waits for a counter to be exactly 1, in steps of 2: it wraps around and never is.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $i i32)
        (loop $again
            (local.set $i (i32.add (local.get $i) (i32.const 2)))
            (br_if $again (i32.ne (local.get $i) (i32.const 1))))
        (i32.const 0)))
