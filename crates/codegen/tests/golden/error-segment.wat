;; Data that lies outside the memory.
(module
  (memory (export "memory") 1 1)
  (data (i32.const 65530) "too long")
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (i32.const 0)))
