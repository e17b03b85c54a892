;; both: fuel. Goes 100 deep and comes back, for ever: coming back must not be free.
(module
    (func $down (param $n i32)
        (if (local.get $n) (then (call $down (i32.sub (local.get $n) (i32.const 1))))))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again (call $down (i32.const 100)) (br $again))
        (unreachable)))
