;; Two functions that call each other, again and again.
(module
    (memory (export "memory") 256 256)
    (func $even (param $n i32) (result i32)
        (if (result i32) (local.get $n)
            (then (call $odd (i32.sub (local.get $n) (i32.const 1))))
            (else (i32.const 1))))
    (func $odd (param $n i32) (result i32)
        (if (result i32) (local.get $n)
            (then (call $even (i32.sub (local.get $n) (i32.const 1))))
            (else (i32.const 0))))
    (func (export "on_rx") (param i32 i32) (result i32)
        (loop $again
            (drop (call $even (i32.const 200)))
            (br $again))
        (unreachable)))
