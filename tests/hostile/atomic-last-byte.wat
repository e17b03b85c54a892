;; both: consume. An 8-bit operation on the last byte of the memory: the word it is made of must not reach further.
;; memory 0xffff: 5a
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i32.atomic.rmw8.xor_u (i32.const 65535) (i32.const 0x5a)))
        (i32.const 0)))
