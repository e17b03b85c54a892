;; A proposal that is not accepted.
(module
  (memory (export "memory") 1 1)
  (tag $oops)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (throw $oops)))
