;; both: divide_by_zero at i64.rem_u. A remainder of none, 64 bits, unsigned: eBPF would leave the number as it is.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.wrap_i64 (i64.rem_u (i64.const 5) (i64.extend_i32_u (local.get $channel))))))
