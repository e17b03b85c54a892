;; refused "does not fit". A data segment that begins inside the memory and ends outside.
(module
    (data (i32.const 65535) "two")
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
