;; both: message_bounds at call. Eight bytes of which seven are inside.
(module
    (import "ashway" "msg_load64be" (func $msg_load64be (param i32) (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (call $msg_load64be (i32.sub (local.get $len) (i32.const 7))))
        (i32.const 0)))
