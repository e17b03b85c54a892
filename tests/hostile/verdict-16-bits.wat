;; both: bad_verdict. 0x10001, which is `reply` to who looks at 16 bits.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.const 0x10001)))
