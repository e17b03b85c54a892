;; both: memory_bounds at memory.copy. A copy whose source ends one byte behind the memory.
;; memory 0x0: 00000000
(module
    (data (i32.const 65520) "secretsecretsecr")
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (memory.copy (i32.const 0) (i32.const 65520) (i32.const 17))
        (i32.const 0)))
