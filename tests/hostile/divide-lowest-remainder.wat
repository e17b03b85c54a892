;; both: consume. The remainder of the lowest number and -1 is 0, and no fault.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.rem_s (i32.const 0x80000000) (i32.sub (local.get $channel) (i32.const 1)))))
