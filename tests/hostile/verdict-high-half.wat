;; both: pass. A verdict of 64 bits, wrapped: its high half must be gone.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.wrap_i64 (i64.or (i64.const 3) (i64.shl (i64.extend_i32_u (local.get $len)) (i64.const 40))))))
