;; Not valid: an operand is missing.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (i32.add (local.get $len))))
