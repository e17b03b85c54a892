;; both: memory_bounds at i32.store8. An offset that would be negative in the 16 bits of an eBPF instruction.
;; memory 0x1: 00
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.store8 offset=0x8001 (i32.const 0x8000) (i32.const 1))
        (i32.const 0)))
