;; A memory that can grow is checked against what it is now.
(module
  (memory (export "memory") 1 4)
  (func (export "on_rx") (param $p i32) (param $channel i32) (result i32)
    (drop (memory.grow (i32.const 1)))
    (i32.store (local.get $p) (memory.size))
    (i32.load (i32.const 70000))))
