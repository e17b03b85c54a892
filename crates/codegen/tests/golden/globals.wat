;; Mutable globals are words of the state region, constants are constants.
(module
  (memory (export "memory") 1 1)
  (global $count (mut i32) (i32.const 0))
  (global $total (mut i64) (i64.const 0))
  (global $step i32 (i32.const 3))
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (global.set $count (i32.add (global.get $count) (global.get $step)))
    (global.set $total (i64.add (global.get $total) (i64.extend_i32_u (local.get $len))))
    (global.get $count)))
