;; both: reply. A message longer than any is. The answer, 1, is the verdict, and the message as it came.
;; message: 00010203
(module
    (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (@custom "ashway.grows" "\00\02\00\00")
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (call $resize (i32.add (local.get $len) (i32.const 513))))
        (call $resize (i32.const 65536))))
