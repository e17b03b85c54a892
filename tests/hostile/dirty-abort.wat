;; both: abort, changed. Gives up of its own will, but has not undone what it did to the message.
(module
    (import "ashway" "msg_store8" (func $msg_store8 (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_store8 (i32.const 5) (i32.const 0xbd))
        (i32.const 6)))
