;; both: memory_bounds at call. A copy to the message from behind the memory: what would leave is another's.
(module
    (import "ashway" "msg_write" (func $msg_write (param i32 i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $msg_write (i32.const 0) (i32.const 65535) (i32.const 2))
        (i32.const 1)))
