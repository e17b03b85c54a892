;; both: message_bounds, changed. Reads a byte that the message had before it was made shorter.
(module
    (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
    (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (call $resize (i32.const 8)))
        (drop (call $load (i32.const 8)))
        (i32.const 1)))
