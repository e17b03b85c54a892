;; both: consume. A compare-exchange of 16 bits that expects 0x10000: the standard compares 16 bits, so it finds its 0.
;; memory 0x40: 77770000
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i32.atomic.rmw16.cmpxchg_u (i32.const 64) (i32.const 0x10000) (i32.const 0x7777)))
        (i32.const 0)))
