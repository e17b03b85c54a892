;; both: memory_bounds at i64.load. Address and offset add up to 2^32 + 4: it must not be address 4.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i64.load offset=8 (i32.const 0xfffffffc)))
        (i32.const 0)))
