;; both: consume. All 16 MiB at once, and a store to each page of them.
;; memory 0xfff000: 5500
(module
    (memory (export "memory") 1 256)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $at i32)
        (drop (memory.grow (i32.const 255)))
        (loop $again
            (i32.store8 (local.get $at) (i32.const 0x55))
            (br_if $again (i32.lt_u
                (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x1000000))))
        (i32.const 0)))
