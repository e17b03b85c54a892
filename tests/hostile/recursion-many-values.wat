;; both: stack. A recursion that returns eight values from each depth.
(module
    (func $f (param i32) (result i32 i32 i32 i32 i32 i32 i32 i32)
        (call $f (i32.add (local.get 0) (i32.const 1))))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $f (local.get $len))
        (drop) (drop) (drop) (drop) (drop) (drop) (drop) (drop)
        (i32.const 0)))
