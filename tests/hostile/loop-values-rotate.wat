;; both: fuel at loop. A loop with eight parameters that change places each turn: all of a turn is moving.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $x i64) (local $y i64)
        (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4)
        (i64.const 5) (i64.const 6) (i64.const 7) (i64.const 8)
        (loop $again (param i64 i64 i64 i64 i64 i64 i64 i64)
            (local.set $x)
            (local.set $y)
            (local.get $x)
            (local.get $y)
            (br $again))
        (unreachable)))
