;; both: overflow at i64.div_s. The lowest number through -1, 64 bits: a CPU faults.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.wrap_i64 (i64.div_s (i64.const 0x8000000000000000)
            (i64.sub (i64.extend_i32_s (local.get $channel)) (i64.const 1))))))
