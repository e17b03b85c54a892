;; both: message_bounds at call. A copy from far in front of the frame to within the message.
(module
    (import "ashway" "msg_read" (func $msg_read (param i32 i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_read (i32.const -240) (i32.const 0) (i32.const 250))
        (i32.const 0)))
