;; both: message_bounds at call. The sender says where to read, and says 66051.
(module
    (import "ashway" "msg_load32be" (func $msg_load32be (param i32) (result i32)))
    (import "ashway" "msg_load8" (func $msg_load8 (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_load8 (call $msg_load32be (i32.const 0)))))
