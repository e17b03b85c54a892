;; refused "table". A table of 2^32 - 1 entries.
(module
    (table 4294967295 funcref)
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
