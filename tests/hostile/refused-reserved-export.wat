;; refused "the name is taken". An export under the name of the normal form's own start function.
(module
    (func (export "_ashway_start"))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
