;; both: message_bounds at call. In front of the frame, where the kernel keeps its own: further than any header reaches.
(module
    (import "ashway" "msg_load8" (func $msg_load8 (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_load8 (i32.const -225))))
