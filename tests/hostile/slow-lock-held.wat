;; both: fuel at loop. Spins for a lock that is taken and that nobody gives back.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.atomic.store (i32.const 128) (i32.const 1))
        (loop $again
            (br_if $again (i32.atomic.rmw.cmpxchg (i32.const 128) (i32.const 0) (i32.const 2))))
        (i32.const 0)))
