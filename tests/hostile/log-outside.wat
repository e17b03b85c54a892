;; both: memory_bounds. A line whose last byte lies behind the memory.
(module
    (import "ashway" "log" (func $log (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32)
        (call $log (i32.const 65533) (i32.const 3))
        (call $log (i32.const 65533) (i32.const 4))
        (i32.const 0)))
