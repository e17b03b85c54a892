;; both: pass, changed. Changes the message and gives it to the host, which is promised it unchanged.
(module
    (import "ashway" "msg_store8" (func $msg_store8 (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_store8 (i32.const 5) (i32.const 0xbd))
        (i32.const 3)))
