;; A passive segment lies in the state region, behind the word for its size.
(module
  (memory (export "memory") 1 1)
  (data $greeting "hello, world")
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (memory.init $greeting (i32.const 64) (i32.const 0) (local.get $len))
    (data.drop $greeting)
    (i32.const 0)))
