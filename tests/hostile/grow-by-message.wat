;; both: consume, then consume, then consume, then memory_bounds. A page more with each message, and no look at whether it came.
;; memory 0x30000: 77
(module
    (global $at (mut i32) (i32.const 0))
    (memory (export "memory") 1 4)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (memory.grow (i32.const 1)))
        (global.set $at (i32.add (global.get $at) (i32.const 0x10000)))
        (i32.store8 (global.get $at) (i32.const 0x77))
        (i32.const 0)))
