;; both: memory_bounds at i64.load. The end of the largest memory that is allowed.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i64.load (i32.const 0xfffff9)))
        (i32.const 0)))
