;; both: message_bounds at call. A store at -16, where IPv4 keeps the source: the reply would come from elsewhere.
(module
    (import "ashway" "msg_store32be" (func $msg_store32be (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_store32be (i32.const -16) (i32.const 0x7f000001))
        (i32.const 1)))
