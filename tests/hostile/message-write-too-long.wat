;; both: message_bounds at call. A copy to the message that is one byte longer than it.
(module
    (import "ashway" "msg_write" (func $msg_write (param i32 i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_write (i32.const 0) (i32.const 0) (i32.add (local.get $len) (i32.const 1)))
        (i32.const 1)))
