;; A handler of another type.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (result i32)
    (local.get $len)))
