;; both: memory_bounds at i32.load8_u. The first byte behind the memory.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i32.load8_u (i32.const 65536)))
        (i32.const 0)))
