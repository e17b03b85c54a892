;; both: memory_bounds at memory.copy. A destination near 4 GiB, whose end wraps around into the memory.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (memory.copy (i32.const 0xfffffff0) (i32.const 0) (i32.const 0x20))
        (i32.const 0)))
