;; both: fuel at loop. Stores to another page each time, so that no translation is in the TLB.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $at i32)
        (loop $again
            (i64.store (i32.and (local.get $at) (i32.const 0xfffff8)) (i64.const -1))
            (local.set $at (i32.add (local.get $at) (i32.const 0x1f040)))
            (br $again))
        (unreachable)))
