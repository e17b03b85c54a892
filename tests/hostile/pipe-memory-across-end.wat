;; both: memory_bounds at call. A run to the end of the memory, one byte too far: none is written.
;; memory 0xfffa: 000000000000
(module
    (import "ashway" "pipe_read" (func $read (param i32 i32 i32 i32)))
    (import "ashway" "pipe_write" (func $write (param i32 i32 i32 i32)))
    (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
    (import "ashway" "pipe_set" (func $set (param i32 i64)))
    (import "ashway" "pipe_get" (func $get (param i32) (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $read (i32.const 0) (i32.const 65530) (i32.const 7) (i32.const 0))
        (i32.const 0))
    (@custom "ashway.pipes" "xor8(255)"))
