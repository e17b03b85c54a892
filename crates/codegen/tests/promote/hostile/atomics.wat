;; Compare-exchange loops on words that are in no cache.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param i32 i32) (result i32)
        (local $x i32)
        (loop $again
            (drop (i32.atomic.rmw8.xor_u (i32.and (local.get $x) (i32.const 0xffffff)) (i32.const 1)))
            (local.set $x (i32.add (i32.mul (local.get $x) (i32.const 1664525)) (i32.const 1013904223)))
            (br $again))
        (unreachable)))
