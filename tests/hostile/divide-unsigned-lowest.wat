;; both: consume. Unsigned, 0x80000000 through 0xffffffff is 0, and no overflow.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.div_u (i32.const 0x80000000) (i32.sub (local.get $channel) (i32.const 1)))))
