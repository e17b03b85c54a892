;; both: consume. A shift by 33 is a shift by 1: the address is 2 and not 2^33.
;; memory 0x2: 07
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.store8 (i32.shl (i32.const 1) (i32.add (local.get $channel) (i32.const 33))) (i32.const 7))
        (i32.const 0)))
