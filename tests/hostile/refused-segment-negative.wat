;; refused "does not fit". A data segment at -1, of no bytes.
(module
    (data (i32.const -1) "")
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
