;; both: start fuel. There is never a first message.
(module
    (memory (export "memory") 1 1)
    (func $start
        (loop $again (br $again)))
    (start $start)
    (func (export "on_rx") (param i32 i32) (result i32)
        (i32.const 0)))
