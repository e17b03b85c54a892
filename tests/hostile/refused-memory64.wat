;; refused "". Addresses of 64 bits.
(module
    (memory (export "memory") i64 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
