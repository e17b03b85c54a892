;; both: overflow at i32.div_s. The lowest number through -1, 32 bits: the quotient does not fit.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.div_s (i32.const 0x80000000) (i32.sub (local.get $channel) (i32.const 1)))))
