;; both: consume. An address that had a high half: 0x100000010, wrapped, must be 0x10 in a register of 64 bits.
;; memory 0x10: 2a000000
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.store
            (i32.wrap_i64 (i64.or (i64.shl (i64.extend_i32_u (local.get $len)) (i64.const 32)) (i64.const 0x10)))
            (i32.const 0x2a))
        (i32.const 0)))
