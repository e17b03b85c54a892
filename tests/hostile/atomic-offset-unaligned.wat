;; both: unaligned at i32.atomic.store. Address and offset that are aligned each, but not to the size: 2 and 0.
;; memory 0x40: 0000000000000000
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.atomic.store offset=2 (i32.const 64) (i32.const -1))
        (i32.const 0)))
