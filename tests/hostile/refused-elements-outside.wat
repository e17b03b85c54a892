;; refused "does not fit". An element segment behind its table.
(module
    (table 1 1 funcref)
    (func $f)
    (elem (i32.const 1) $f)
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
