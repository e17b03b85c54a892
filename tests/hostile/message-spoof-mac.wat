;; both: message_bounds at call. A store at -42, where the frame's Ethernet header is: to answer in another's name.
(module
    (import "ashway" "msg_store32be" (func $msg_store32be (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_store32be (i32.const -42) (i32.const 0x02000000))
        (i32.const 1)))
