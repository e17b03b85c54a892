;; both: fuel. A flood of log lines, longer than any may be.
(module
    (import "ashway" "log" (func $log (param i32 i32)))
    (memory (export "memory") 1 1)
    (data (i32.const 0) "\1b]0;owned\07\1b[2J\9b31m flood")
    (func (export "on_rx") (param i32 i32) (result i32)
        (loop $again
            (call $log (i32.const 0) (i32.const 1024))
            (br $again))
        (unreachable)))
