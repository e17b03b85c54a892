;; both: fuel at loop. Loads of eight bytes that lie half in one page and half in the next.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $at i32) (local $sum i64)
        (loop $again
            (local.set $sum (i64.add (local.get $sum) (i64.load offset=4092 (local.get $at))))
            (local.set $at (i32.and (i32.add (local.get $at) (i32.const 4096)) (i32.const 0xe000)))
            (br $again))
        (unreachable)))
