;; both: consume. Registers that no run would leave: each run brings them into their form.
;; memory 0x2000: ffff000000000000
(module
    (import "ashway" "pipe_read" (func $read (param i32 i32 i32 i32)))
    (import "ashway" "pipe_write" (func $write (param i32 i32 i32 i32)))
    (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
    (import "ashway" "pipe_set" (func $set (param i32 i64)))
    (import "ashway" "pipe_get" (func $get (param i32) (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $set (i32.const 0) (i64.const -1))
        (call $set (i32.const 1) (i64.const 0x7fffffffffffffff))
        (call $set (i32.const 2) (i64.const -2))
        (call $read (i32.const 0) (i32.const 4096) (i32.const 0) (i32.const 0))
        (call $in_place (i32.const 4096) (i32.const 61440) (i32.const 0))
        (i64.store (i32.const 0x2000) (call $get (i32.const 0)))
        (i32.const 0))
    (@custom "ashway.pipes" "cksum16 | mask(1) | sum8"))
