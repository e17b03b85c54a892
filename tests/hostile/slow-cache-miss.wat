;; both: fuel at loop. Loads all over 16 MiB, each at an address made of the one before.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $x i32)
        (loop $again
            (local.set $x (i32.add
                (i32.mul (local.get $x) (i32.const 1664525))
                (i32.add (i32.const 1013904223)
                    (i32.load (i32.and (local.get $x) (i32.const 0xfffffc))))))
            (br $again))
        (unreachable)))
