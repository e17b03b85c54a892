;; both: fuel at loop. Sets every global it has to the largest number there is: the fuel might be one of them.
(module
    (global (mut i64) (i64.const 1))
    (global (mut i32) (i32.const 1))
    (global (mut i32) (i32.const 1))
    (global (mut i32) (i32.const 1))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again
            (global.set 0 (i64.const 0x7fffffffffffffff))
            (global.set 1 (i32.const -1))
            (global.set 2 (i32.const -1))
            (global.set 3 (i32.const -1))
            (br $again))
        (unreachable)))
