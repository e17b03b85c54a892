;; both: memory_bounds at i64.load. Reads upwards from the last page until something stops it.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $at i32)
        (local.set $at (i32.const 61440))
        (loop $again
            (drop (i64.load (local.get $at)))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br $again))
        (unreachable)))
