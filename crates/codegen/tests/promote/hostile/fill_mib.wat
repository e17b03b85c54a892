;; Fills of a MiB each.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param i32 i32) (result i32)
        (local $i i32)
        (loop $again
            (memory.fill (local.get $i) (local.get $i) (i32.const 0x100000))
            (local.set $i (i32.and (i32.add (local.get $i) (i32.const 0x110000)) (i32.const 0xe00000)))
            (br $again))
        (unreachable)))
