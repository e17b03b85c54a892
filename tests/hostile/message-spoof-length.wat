;; both: message_bounds at call. A store at -4, where UDP keeps its length: the reply would leak what is behind.
(module
    (import "ashway" "msg_store32be" (func $msg_store32be (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_store32be (i32.const -4) (i32.const 0xffff0000))
        (i32.const 1)))
