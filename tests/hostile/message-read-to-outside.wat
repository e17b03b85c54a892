;; both: memory_bounds at call. A copy of the message to the end of the memory, one byte too far: none is written.
;; memory 0xfffa: 000000000000
(module
    (import "ashway" "msg_read" (func $msg_read (param i32 i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_read (i32.const 0) (i32.const 65530) (i32.const 7))
        (i32.const 0)))
