;; both: consume. The last byte of the header below, which a handler may read.
(module
    (import "ashway" "msg_load8" (func $msg_load8 (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (call $msg_load8 (i32.const -1)))
        (i32.const 0)))
