;; Each access is checked in 64 bits; fixed places inside need no check.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $p i32) (param $channel i32) (result i32)
    (i32.store (i32.const 1024) (local.get $p))
    (i32.store8 offset=3 (local.get $p) (i32.const 255))
    (i64.store offset=40000 (local.get $p) (i64.const 0x1122334455667788))
    (i32.add
      (i32.load16_s (local.get $p))
      (i32.load offset=4 (i32.const 1024)))))
