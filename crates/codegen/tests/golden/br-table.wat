;; A balanced tree over runs of equal targets.
(module
  (memory (export "memory") 1 1)
  (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
    (block $other
      (block $two
        (block $one
          (br_table $one $two $two $one $other $one $other (local.get $len)))
        (return (i32.const 1)))
      (return (i32.const 2)))
    (i32.const 3)))
