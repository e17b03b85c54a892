;; both: unreachable at unreachable, then unreachable. Two words that belong together, and it falls between them: its own loss.
;; memory 0x0: 0200000000000000
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
        (if (i32.lt_u (i32.load (i32.const 0)) (i32.const 100)) (then (unreachable)))
        (i32.store (i32.const 4) (i32.add (i32.load (i32.const 4)) (i32.const 1)))
        (i32.const 0)))
