;; both: fuel at memory.fill. One fill of 16 MiB, which is more than any budget: not a byte of it is done.
;; memory 0x0: 00000000
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (memory.fill (i32.const 0) (i32.const 0xaa) (i32.const 0x1000000))
        (i32.const 0)))
