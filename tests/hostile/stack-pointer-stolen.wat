;; both: memory_bounds at i64.store. Sets its stack pointer to just above 0 and pushes.
(module
    (global $sp (mut i32) (i32.const 16384))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (global.set $sp (i32.const 4))
        (global.set $sp (i32.sub (global.get $sp) (i32.const 16)))
        (i64.store (global.get $sp) (i64.const -1))
        (i32.const 0)))
