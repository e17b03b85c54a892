;; both: stack. Two functions that call each other.
(module
    (func $even (param $n i32) (result i32)
        (if (result i32) (local.get $n)
            (then (i32.add (call $odd (i32.sub (local.get $n) (i32.const 1))) (i32.const 1)))
            (else (i32.const 0))))
    (func $odd (param $n i32) (result i32)
        (if (result i32) (local.get $n)
            (then (i32.add (call $even (i32.sub (local.get $n) (i32.const 1))) (i32.const 1)))
            (else (i32.const 1))))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $even (i32.const 1000000))))
