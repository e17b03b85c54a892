;; user: consume; kernel: refused "has no eBPF counterpart". Counts with floating point until it is not a number.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (f64.store (i32.const 0) (f64.div (f64.load (i32.const 0)) (f64.load (i32.const 0))))
        (i32.const 0)))
