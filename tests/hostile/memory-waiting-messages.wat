;; both: memory_bounds at i64.load. Where messages of others wait, 64 KiB behind its memory.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i64.load (i32.const 0x20000)))
        (i32.const 0)))
