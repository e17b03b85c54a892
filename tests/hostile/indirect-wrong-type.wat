;; both: indirect_call at call_indirect. A function of another type: its result would be whatever was there.
(module
    (table $t 4 4 funcref)
    (elem (table $t) (i32.const 1) func $nothing $number)
    (func $nothing)
    (func $number (result i32) (i32.const 0))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call_indirect $t (result i32) (i32.const 1))))
