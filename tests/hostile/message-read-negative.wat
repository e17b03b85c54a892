;; both: fuel at call. A copy of -1 bytes: the charge comes first, and must not wrap around.
;; memory 0x0: 00000000
(module
    (import "ashway" "msg_read" (func $msg_read (param i32 i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_read (i32.const 0) (i32.const 0) (i32.const -1))
        (i32.const 0)))
