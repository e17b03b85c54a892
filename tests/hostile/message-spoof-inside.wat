;; both: reply, changed. An IPv4 header of another host, as payload: it stays payload.
;; message: 4500001c00000000401100007f0000017f0000010035003500080000
(module
    (import "ashway" "msg_write" (func $msg_write (param i32 i32 i32)))
    (data (i32.const 256) "\45\00\00\1c\00\00\00\00\40\11\00\00\7f\00\00\01\7f\00\00\01\00\35\00\35\00\08\00\00")
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_write (i32.const 0) (i32.const 256) (i32.const 28))
        (i32.const 1)))
