;; both: fuel at loop, changed. Writes the message for ever: it is spoiled and must go nowhere.
(module
    (import "ashway" "msg_store8" (func $msg_store8 (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $i i32)
        (loop $again
            (call $msg_store8 (i32.const 0) (local.tee $i (i32.add (local.get $i) (i32.const 1))))
            (br $again))
        (unreachable)))
