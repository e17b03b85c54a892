;; refused "built for handler ABI version 4294967295". A version that does not exist: the largest.
(module
    (@custom "ashway.abi" "\ff\ff\ff\ff")
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
