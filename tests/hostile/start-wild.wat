;; both: start memory_bounds. Stores outside before the first message.
(module
    (memory (export "memory") 1 1)
    (func $start
        (i32.store (i32.const -4) (i32.const 1)))
    (start $start)
    (func (export "on_rx") (param i32 i32) (result i32)
        (i32.const 0)))
