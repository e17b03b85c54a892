;; both: memory_bounds at i32.store. A store of which three bytes are inside: none is written.
;; memory 0xfffd: 000000
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.store (i32.const 65533) (i32.const -1))
        (i32.const 0)))
