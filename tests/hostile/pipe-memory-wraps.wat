;; both: memory_bounds at call. In place over an address whose end wraps around.
(module
    (import "ashway" "pipe_read" (func $read (param i32 i32 i32 i32)))
    (import "ashway" "pipe_write" (func $write (param i32 i32 i32 i32)))
    (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
    (import "ashway" "pipe_set" (func $set (param i32 i64)))
    (import "ashway" "pipe_get" (func $get (param i32) (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $in_place (i32.const -32) (i32.const 64) (i32.const 0))
        (i32.const 0))
    (@custom "ashway.pipes" "xor8(255)"))
