;; both: bad_verdict. 0x103, which is `pass` to who looks at 8 bits.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.const 0x103)))
