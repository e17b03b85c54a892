;; A constant of a type that the kernel has not.
(module
  (memory (export "memory") 1 1)
  (global $half f64 (f64.const 0.5))
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (i32.wrap_i64 (i64.reinterpret_f64 (global.get $half)))))
