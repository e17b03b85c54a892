;; both: fuel. Ackermann of (3, 12), deep and wide at once.
(module
    (func $a (param $m i32) (param $n i32) (result i32)
        (if (result i32) (i32.eqz (local.get $m))
            (then (i32.add (local.get $n) (i32.const 1)))
            (else (if (result i32) (i32.eqz (local.get $n))
                (then (call $a (i32.sub (local.get $m) (i32.const 1)) (i32.const 1)))
                (else (call $a (i32.sub (local.get $m) (i32.const 1))
                    (call $a (local.get $m) (i32.sub (local.get $n) (i32.const 1)))))))))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (call $a (i32.const 3) (i32.const 12)))
        (i32.const 0)))
