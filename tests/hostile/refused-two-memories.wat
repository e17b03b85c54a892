;; refused "". A second memory: the message is one, in the normal form.
(module
    (memory $message (export "message") 1 1)
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
