;; both: consume. A number of which half is header and half is message.
(module
    (import "ashway" "msg_load32be" (func $msg_load32be (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (call $msg_load32be (i32.const -2)))
        (i32.const 0)))
