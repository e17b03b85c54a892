;; both: divide_by_zero at i32.div_u. Through 2^32, wrapped: 0 in 32 bits, not in the register.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.div_u (local.get $len) (i32.wrap_i64 (i64.shl (i64.extend_i32_u (local.get $len)) (i64.const 32))))))
