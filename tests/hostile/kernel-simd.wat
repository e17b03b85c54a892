;; user: memory_bounds; kernel: refused "has no eBPF counterpart". A store of 16 bytes, the last of which is outside.
;; memory 0xfff1: 000000
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (v128.store (i32.const 65521) (v128.const i64x2 -1 -1))
        (i32.const 0)))
