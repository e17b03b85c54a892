;; A variable of a type that the state region does not hold.
(module
  (memory (export "memory") 1 1)
  (global $v (mut v128) (v128.const i64x2 0 0))
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (i32x4.extract_lane 0 (global.get $v))))
