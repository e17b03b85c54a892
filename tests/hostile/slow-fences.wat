;; both: fuel at loop. Nothing but fences.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again (atomic.fence) (br $again))
        (unreachable)))
