;; both: memory_bounds at memory.init. A source of -1 whose end wraps around to 1.
(module
    (data $d "mine")
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (memory.init $d (i32.const 16) (i32.const -1) (i32.const 2))
        (i32.const 0)))
