;; both: start message_bounds. Reads a message before there is one.
(module
    (import "ashway" "msg_load8" (func $msg_load8 (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func $start
        (drop (call $msg_load8 (i32.const 0))))
    (start $start)
    (func (export "on_rx") (param i32 i32) (result i32)
        (i32.const 0)))
