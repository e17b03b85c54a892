;; refused "grow by 4097 bytes, at most 4096". A declaration of more room than any frame has.
(module
    (memory (export "memory") 1 1)
    (@custom "ashway.grows" "\01\10\00\00")
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
