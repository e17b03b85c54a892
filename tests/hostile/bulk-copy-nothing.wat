;; both: fuel at loop. Copies of no bytes at all, at the very end of the memory.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again
            (memory.copy (i32.const 65536) (i32.const 65536) (i32.const 0))
            (br $again))
        (unreachable)))
