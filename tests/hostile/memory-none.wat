;; both: memory_bounds at i32.load8_u. A memory of no pages: even address 0 is outside.
(module
    (memory (export "memory") 0 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i32.load8_u (i32.const 0)))
        (i32.const 0)))
