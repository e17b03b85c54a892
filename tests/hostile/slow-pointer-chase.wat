;; both: fuel at loop. Goes along a chain of pointers through every cache line of 1 MiB, 100 loads a turn.
(module
    (memory (export "memory") 16 16)
    ;; Line by line, far enough apart that no prefetcher follows.
    (func $chain (local $at i32)
        (loop $again
            (i32.store (local.get $at) (i32.and
                (i32.add (local.get $at) (i32.const 0x34540)) (i32.const 0xfffc0)))
            (br_if $again (i32.lt_u
                (local.tee $at (i32.add (local.get $at) (i32.const 64))) (i32.const 0x100000)))))
    (start $chain)
    (func (export "on_rx") (param $at i32) (param i32) (result i32)
        (local.set $at (i32.const 0))
        (loop $again
            (local.get $at)
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
            (local.set $at)
            (br $again))
        (unreachable)))
