;; both: consume. Address 0 is memory like any other; a store there does what it says.
;; memory 0x0: 0df0ad0b
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.store (i32.const 0) (i32.const 0x0badf00d))
        (i32.const 0)))
