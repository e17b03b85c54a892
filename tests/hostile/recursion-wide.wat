;; both: fuel. Fibonacci of 60: never deep, but 10^12 calls.
(module
    (func $fib (param $n i32) (result i32)
        (if (result i32) (i32.lt_u (local.get $n) (i32.const 2))
            (then (local.get $n))
            (else (i32.add
                (call $fib (i32.sub (local.get $n) (i32.const 1)))
                (call $fib (i32.sub (local.get $n) (i32.const 2)))))))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (call $fib (i32.const 60)))
        (i32.const 0)))
