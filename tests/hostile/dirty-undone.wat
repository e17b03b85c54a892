;; both: abort, changed. Puts back what it overwrote: nobody compares, so it counts as changed.
(module
    (import "ashway" "msg_store8" (func $msg_store8 (param i32 i32)))
    (import "ashway" "msg_load8" (func $msg_load8 (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $old i32)
        (local.set $old (call $msg_load8 (i32.const 5)))
        (call $msg_store8 (i32.const 5) (i32.const 0xbd))
        (call $msg_store8 (i32.const 5) (local.get $old))
        (i32.const 6)))
