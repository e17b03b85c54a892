;; Words have instructions; narrower ones are exchanged within their word.
(module
  (memory (export "memory") 1 1 shared)
  (func (export "on_rx") (param $p i32) (param $channel i32) (result i32)
    (drop (i32.atomic.rmw.add (local.get $p) (i32.const 1)))
    (i64.atomic.store offset=8 (local.get $p) (i64.const 5))
    (i32.atomic.rmw16.xchg_u offset=2 (local.get $p) (i32.const 7))))
