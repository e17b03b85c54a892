;; refused "is no pipe". A pipe that writes to memory.
(module
    (import "ashway" "pipe_read" (func $read (param i32 i32 i32 i32)))
    (import "ashway" "pipe_write" (func $write (param i32 i32 i32 i32)))
    (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
    (import "ashway" "pipe_set" (func $set (param i32 i64)))
    (import "ashway" "pipe_get" (func $get (param i32) (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.const 0))
    (func (export "poke") (param i32) (result i32)
        (i32.store (local.get 0) (i32.const 1)) (local.get 0))
    (@custom "ashway.pipes" "poke:32"))
