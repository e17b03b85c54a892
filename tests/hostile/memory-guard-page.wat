;; both: memory_bounds at i64.store. A store in the last page of 4 GiB, where a negative offset would lie.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i64.store (i32.const -4096) (i64.const -1))
        (i32.const 0)))
