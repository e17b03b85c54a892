;; both: unaligned at i64.atomic.rmw.add. An atomic addition that is neither aligned nor inside: alignment is looked at first, in both tiers.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (drop (i64.atomic.rmw.add (i32.const 65533) (i64.const 1)))
        (i32.const 0)))
