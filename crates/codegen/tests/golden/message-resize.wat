;; The message gets shorter.
(module
  (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (call $resize (i32.const 8))))
