;; both: fuel at loop. The sender says how many turns: 0xf0010203, a number from the message.
(module
    (import "ashway" "msg_load32be" (func $msg_load32be (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $n i32)
        (local.set $n (i32.or (call $msg_load32be (i32.const 0)) (i32.const 0xf0000000)))
        (loop $again
            (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (i32.const 0)))
