;; both: fuel at loop. Reads the message byte by byte, for ever.
(module
    (import "ashway" "msg_load8" (func $msg_load8 (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $sum i32)
        (loop $again
            (local.set $sum (i32.add (local.get $sum)
                (call $msg_load8 (i32.rem_u (local.get $sum) (local.get $len)))))
            (br $again))
        (unreachable)))
