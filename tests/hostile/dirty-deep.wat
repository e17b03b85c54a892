;; both: stack, changed. Changes the message 20 calls down and runs out of stack below.
(module
    (import "ashway" "msg_store8" (func $msg_store8 (param i32 i32)))
    (func $down (param $n i32)
        (if (i32.eq (local.get $n) (i32.const 20))
            (then (call $msg_store8 (i32.const 0) (local.get $n))))
        (call $down (i32.add (local.get $n) (i32.const 1))))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $down (i32.const 0))
        (i32.const 0)))
