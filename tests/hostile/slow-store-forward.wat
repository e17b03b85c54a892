;; both: fuel at loop. Stores one byte and loads the eight around it at once: the CPU cannot forward it.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $x i32)
        (loop $again
            (i32.store8 offset=3 (i32.const 64) (local.get $x))
            (local.set $x (i32.wrap_i64 (i64.add (i64.load (i32.const 64)) (i64.const 1))))
            (br $again))
        (unreachable)))
