;; both: fuel at memory.fill. A fill of -1 bytes, which are 4 GiB: the charge must not wrap around.
;; memory 0x0: 00000000
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (memory.fill (i32.const 0) (i32.const 0xaa) (i32.const -1))
        (i32.const 0)))
