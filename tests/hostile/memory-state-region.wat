;; both: memory_bounds at i64.store. Where its globals are kept, right behind its memory: the size of the memory is the first of them.
(module
    (global $g (mut i64) (i64.const 5))
    (func $touch (global.set $g (i64.const 6)))
    (start $touch)
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i64.store (i32.const 0x10000) (i64.const 0x7fffffff))
        (i32.const 0)))
