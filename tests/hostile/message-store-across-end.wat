;; both: message_bounds at call. A store of which half is inside: no byte of it is done.
(module
    (import "ashway" "msg_store64be" (func $msg_store64be (param i32 i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_store64be (i32.sub (local.get $len) (i32.const 4)) (i64.const -1))
        (i32.const 1)))
