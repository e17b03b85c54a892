;; both: memory_bounds at i32.load8_u. A load at -1: the byte before the memory, or the last of 4 GiB.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i32.load8_u (i32.const -1)))
        (i32.const 0)))
