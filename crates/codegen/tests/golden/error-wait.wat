;; A handler never waits.
(module
  (memory (export "memory") 1 1 shared)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (memory.atomic.wait32 (local.get $len) (i32.const 0) (i64.const -1))))
