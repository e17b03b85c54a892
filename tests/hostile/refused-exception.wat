;; refused "exceptions". A throw, past whatever should be done on the way out.
(module
    (tag $t)
    (func (throw $t))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
