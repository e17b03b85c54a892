;; refused "". Another's memory as its own.
(module
    (import "ashway" "memory" (memory 1 1))
    (export "memory" (memory 0))
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
