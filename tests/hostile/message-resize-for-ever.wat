;; both: fuel, changed. Longer and shorter, for ever.
(module
    (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (@custom "ashway.grows" "\00\02\00\00")
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again
            (drop (call $resize (i32.add (local.get $len) (i32.const 512))))
            (drop (call $resize (i32.const 0)))
            (br $again))
        (unreachable)))
