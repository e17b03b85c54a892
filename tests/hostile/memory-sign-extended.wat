;; both: memory_bounds at i32.load. The address is a stored byte, sign-extended: -128.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.store8 (i32.const 8) (i32.const 0x80))
        (drop (i32.load (i32.load8_s (i32.const 8))))
        (i32.const 0)))
