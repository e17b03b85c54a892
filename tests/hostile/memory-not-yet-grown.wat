;; both: memory_bounds at i32.store8. A page that exists, for memory.grow to come, and is not the handler's yet.
;; memory 0x10000: 00
(module
    (memory (export "memory") 1 4)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.store8 (i32.const 0x10000) (i32.const 1))
        (i32.const 0)))
