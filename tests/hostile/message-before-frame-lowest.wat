;; both: message_bounds at call. The lowest offset there is, from memory, with an end that would wrap.
(module
    (import "ashway" "msg_load64le" (func $msg_load64le (param i32) (result i64)))
    (memory (export "memory") 1 1)
    (data (i32.const 16) "\00\00\00\80")
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (call $msg_load64le (i32.load (i32.const 16))))
        (i32.const 0)))
