;; refused "unknown import `_ashway.trap`". An import that only the normal form has.
(module
    (import "_ashway" "trap" (func (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
