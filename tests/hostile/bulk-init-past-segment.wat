;; both: memory_bounds at memory.init. Four bytes from the last of a segment: the next segment lies behind it.
;; memory 0x10: 00000000
(module
    (data $d "mine")
    (data $e "also")
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (memory.init $d (i32.const 16) (i32.const 3) (i32.const 4))
        (i32.const 0)))
