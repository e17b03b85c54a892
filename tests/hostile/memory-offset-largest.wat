;; both: memory_bounds at i32.load8_u. The largest offset that can be written down, and the address 1.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i32.load8_u offset=0xffffffff (i32.const 1)))
        (i32.const 0)))
