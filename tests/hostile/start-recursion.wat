;; both: start stack. Runs out of stack before the first message.
(module
    (memory (export "memory") 1 1)
    (func $start
        (call $start)
        (call $start))
    (start $start)
    (func (export "on_rx") (param i32 i32) (result i32)
        (i32.const 0)))
