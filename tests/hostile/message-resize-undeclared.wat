;; both: reply. A byte more than the message came with, which was not declared.
(module
    (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $resize (i32.add (local.get $len) (i32.const 1)))))
