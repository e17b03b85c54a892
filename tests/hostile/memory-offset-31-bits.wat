;; both: memory_bounds at i32.store8. An offset that is the largest signed number: no instruction of the kernel tier can hold it.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.store8 offset=0x7fffffff (local.get $channel) (i32.const 1))
        (i32.const 0)))
