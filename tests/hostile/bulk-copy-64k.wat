;; both: fuel. Copies of 64 KiB, from and to where no cache has it.
(module
    (memory (export "memory") 256 256)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $i i32)
        (loop $again
            (memory.copy (i32.xor (local.get $i) (i32.const 0x800000)) (local.get $i) (i32.const 0x10000))
            (local.set $i (i32.and (i32.add (local.get $i) (i32.const 0x510000)) (i32.const 0x7f0000)))
            (br $again))
        (unreachable)))
