;; XDP cannot make a message: the user tier sends it.
(module
  (import "ashway" "send" (func $send (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call $send (i32.const 0) (i32.const 0) (i32.const 4))))
