;; both: start unreachable. Falls over before the first message.
(module
    (memory (export "memory") 1 1)
    (func $start
        (unreachable))
    (start $start)
    (func (export "on_rx") (param i32 i32) (result i32)
        (i32.const 0)))
