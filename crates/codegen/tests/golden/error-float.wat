;; No floating point in the kernel.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (local $x f32)
    (local.set $x (f32.convert_i32_u (local.get $len)))
    (i32.trunc_f32_u (f32.add (local.get $x) (f32.const 0.5)))))
