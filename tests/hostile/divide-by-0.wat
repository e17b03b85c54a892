;; both: divide_by_zero at i32.div_s. A number through none.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.div_s (local.get $len) (local.get $channel))))
