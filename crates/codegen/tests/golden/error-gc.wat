;; A proposal that is not accepted.
(module
  (type $pair (struct (field i32) (field i32)))
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (struct.get $pair 0 (struct.new $pair (local.get $len) (i32.const 1)))))
