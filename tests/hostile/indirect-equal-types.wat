;; both: consume. Two types that are written twice and are one: the call is allowed.
(module
    (type $a (func (result i32)))
    (type $b (func (result i32)))
    (table 1 1 funcref)
    (elem (i32.const 0) $f)
    (func $f (type $a) (i32.const 0))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call_indirect (type $b) (i32.const 0))))
