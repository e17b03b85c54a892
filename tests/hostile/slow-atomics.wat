;; both: fuel at loop. Locked read-modify-writes on cold lines; of 8 bits, which the kernel tier makes of a loop of its own.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $x i32)
        (loop $again
            (drop (i32.atomic.rmw8.xor_u (i32.and (local.get $x) (i32.const 0xffffff)) (i32.const 1)))
            (local.set $x (i32.add (i32.mul (local.get $x) (i32.const 1664525)) (i32.const 1013904223)))
            (br $again))
        (unreachable)))
