;; A proposal that is not accepted.
(module
  (memory (export "memory") 1 1)
  (memory 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (i32.const 0)))
