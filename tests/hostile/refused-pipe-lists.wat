;; refused "lists of pipes". More lists than a file may have.
(module
    (import "ashway" "pipe_read" (func $read (param i32 i32 i32 i32)))
    (import "ashway" "pipe_write" (func $write (param i32 i32 i32 i32)))
    (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
    (import "ashway" "pipe_set" (func $set (param i32 i64)))
    (import "ashway" "pipe_get" (func $get (param i32) (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (i32.const 0))
    (@custom "ashway.pipes" "copy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0acopy\0a"))
