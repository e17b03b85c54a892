;; both: unaligned at i32.atomic.load. An atomic load at address 1.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.atomic.load (i32.const 1))))
