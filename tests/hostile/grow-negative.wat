;; both: consume. Grows by -1 page, which would wrap its size around to less: refused with -1.
(module
    (memory (export "memory") 1 4)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (if (i32.ne (memory.grow (i32.const -1)) (i32.const -1)) (then (unreachable)))
        (if (i32.ne (memory.size) (i32.const 1)) (then (unreachable)))
        (i32.const 0)))
