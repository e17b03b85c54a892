;; both: memory_bounds at i32.store8. Asks for a page more than its maximum, does not look at the answer, and uses it.
(module
    (memory (export "memory") 1 2)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (memory.grow (i32.const 2)))
        (i32.store8 (i32.const 0x10000) (i32.const 1))
        (i32.const 0)))
