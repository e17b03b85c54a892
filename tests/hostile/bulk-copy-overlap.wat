;; both: fuel. Copies 60,000 bytes one byte further, which must be done backwards.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again
            (memory.copy (i32.const 1) (i32.const 0) (i32.const 60000))
            (br $again))
        (unreachable)))
