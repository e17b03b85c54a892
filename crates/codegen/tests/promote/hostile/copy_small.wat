;; Many copies that are too short for a loop of chunks.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param i32 i32) (result i32)
        (local $i i32)
        (loop $again
            (memory.copy (local.get $i) (i32.const 0x800000) (i32.const 63))
            (local.set $i (i32.and (i32.add (local.get $i) (i32.const 0x11003)) (i32.const 0xffff80)))
            (br $again))
        (unreachable)))
