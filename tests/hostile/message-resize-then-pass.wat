;; both: pass, changed. A message that was longer for a while, to the host.
(module
    (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (@custom "ashway.grows" "\10\00\00\00")
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (call $resize (i32.add (local.get $len) (i32.const 16))))
        (drop (call $resize (local.get $len)))
        (i32.const 3)))
