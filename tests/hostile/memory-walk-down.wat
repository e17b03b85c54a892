;; both: memory_bounds at i32.store. Writes downwards through address 0: the next is 4 GiB - 4.
;; memory 0x0: ffffffffffffffff
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32) (local $at i32)
        (local.set $at (i32.const 64))
        (loop $again
            (i32.store (local.get $at) (i32.const -1))
            (local.set $at (i32.sub (local.get $at) (i32.const 4)))
            (br $again))
        (unreachable)))
