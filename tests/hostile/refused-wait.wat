;; refused "waiting and waking". Waits on a word of its memory, in softirq, for ever.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32)
        (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1))))
