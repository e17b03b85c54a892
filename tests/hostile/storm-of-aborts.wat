;; both: abort, then abort. Gives up of its own will each time, after a walk through its memory.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $at i32)
        (loop $again
            (i64.store (local.get $at) (i64.const 0x6161616161616161))
            (br_if $again (i32.lt_u
                (local.tee $at (i32.add (local.get $at) (i32.const 64))) (i32.const 65536))))
        (i32.const 6)))
