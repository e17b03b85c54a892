;; refused "". A host call exported as the handler.
(module
    (import "ashway" "msg_write" (func $write (param i32 i32 i32)))
    (export "on_rx" (func $write))
    (memory (export "memory") 1 1)
)
