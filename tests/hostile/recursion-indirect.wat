;; both: stack. A function that finds itself in a table.
(module
    (table 1 1 funcref)
    (elem (i32.const 0) $f)
    (func $f (param i32) (result i32)
        (i32.add (i32.const 1)
            (call_indirect (param i32) (result i32) (local.get 0) (i32.const 0))))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call_indirect (param i32) (result i32) (i32.const 1) (i32.const 0))))
