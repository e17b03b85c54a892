;; The start function runs before the first message; it is none of on_rx's.
(module
  (memory (export "memory") 1 1)
  (global $ready (mut i32) (i32.const 0))
  (start $init)
  (func $init (global.set $ready (i32.const 1)))
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (global.get $ready)))
