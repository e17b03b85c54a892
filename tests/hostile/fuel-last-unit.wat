;; both: fuel at loop. Each message spends nearly all of its budget and then asks for one more copy.
;; memory 0x0: 00
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $i i32)
        (loop $again
            (br_if $again (i32.lt_u
                (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 0x7fffffff))))
        (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536))
        (i32.const 0)))
