;; user: overflow; kernel: refused "has no eBPF counterpart". Infinity as a whole number.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.trunc_f64_s (f64.const inf))))
