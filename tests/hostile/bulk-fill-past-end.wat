;; both: memory_bounds at memory.fill. A fill of which only the last byte is outside: none is written.
;; memory 0xfffa: 000000000000
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (memory.fill (i32.const 65530) (i32.const 0xaa) (i32.const 7))
        (i32.const 0)))
