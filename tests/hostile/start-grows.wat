;; both: consume. Takes all memory it may have before the first message, and writes its last byte.
;; memory 0x3fffff: 99
(module
    (memory (export "memory") 1 64)
    (func $start
        (drop (memory.grow (i32.const 63)))
        (i32.store8 (i32.const 0x3fffff) (i32.const 0x99)))
    (start $start)
    (func (export "on_rx") (param i32 i32) (result i32)
        (i32.const 0)))
