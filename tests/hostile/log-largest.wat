;; both: consume. Lines of no byte, and lines longer than the fuel for them would be if it were not cut.
(module
    (import "ashway" "log" (func $log (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32)
        (call $log (i32.const 65536) (i32.const 0))
        (call $log (i32.const 0) (i32.const 1000000))
        (call $log (i32.const 65432) (i32.const 65536))
        (i32.const 0)))
