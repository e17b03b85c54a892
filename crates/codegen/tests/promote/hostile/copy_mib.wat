;; Copies of a MiB each, forwards and backwards, over all of the memory.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param i32 i32) (result i32)
        (local $i i32)
        (loop $again
            (memory.copy (i32.add (local.get $i) (i32.const 0x800000)) (local.get $i) (i32.const 0x100000))
            (memory.copy (i32.add (local.get $i) (i32.const 100)) (local.get $i) (i32.const 0x100000))
            (local.set $i (i32.and (i32.add (local.get $i) (i32.const 0x110040)) (i32.const 0x6fffff)))
            (br $again))
        (unreachable)))
