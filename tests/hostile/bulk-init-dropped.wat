;; both: memory_bounds at memory.init. A byte of a segment that was dropped.
(module
    (data $d "once")
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (data.drop $d)
        (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1))
        (i32.const 0)))
