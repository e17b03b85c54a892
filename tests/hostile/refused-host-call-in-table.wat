;; refused "used other than by calling it directly". A host call in a table, to be called under another type.
(module
    (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
    (table 1 1 funcref)
    (elem (i32.const 0) $load)
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
