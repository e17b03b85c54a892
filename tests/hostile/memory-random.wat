;; both: memory_bounds at i32.store8. Stores at random addresses of all 32 bits, until one is outside.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $x i32)
        (local.set $x (i32.const 1))
        (loop $again
            (i32.store8 (local.tee $x (i32.add (i32.mul (local.get $x) (i32.const 1664525)) (i32.const 1013904223)))
                (i32.const 0xee))
            (br $again))
        (unreachable)))
