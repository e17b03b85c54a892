;; A remote write (Wallach, Engler & Kaashoek 1996, section V.D): the message says
;; where its payload belongs, by a table of segments that this handler's owner keeps.
;;
;;   0  segment, 4  offset, 8  length, 12  payload    (32 bits, big-endian)
;;
;; A payload may be longer than a message of the measurement can be: it is then
;; written as two halves that are the same bytes, so that as many are moved.
(module
    (import "ashway" "msg_load32be" (func $load (param i32) (result i32)))
    (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
    (memory (export "memory") 2 2)
    ;; Four segments: base and length.
    (data (i32.const 0)
        "\00\10\00\00\00\20\00\00" "\00\40\00\00\00\20\00\00"
        "\00\70\00\00\00\20\00\00" "\00\a0\00\00\00\20\00\00")
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (local $entry i32) (local $at i32) (local $bytes i32) (local $half i32)
        (local.set $entry (call $load (i32.const 0)))
        (if (i32.ge_u (local.get $entry) (i32.const 4)) (then (return (i32.const 3))))
        (local.set $entry (i32.shl (local.get $entry) (i32.const 3)))
        (local.set $at (call $load (i32.const 4)))
        (local.set $bytes (call $load (i32.const 8)))
        (if (i32.gt_u
                (i32.add (local.get $at) (local.get $bytes))
                (i32.load offset=4 (local.get $entry)))
            (then (return (i32.const 3))))
        (local.set $at (i32.add (local.get $at) (i32.load (local.get $entry))))
        (local.set $half (local.get $bytes))
        (if (i32.gt_u (local.get $bytes) (i32.const 2048))
            (then
                (local.set $half (i32.shr_u (local.get $bytes) (i32.const 1)))
                (call $read (i32.const 12)
                    (i32.add (local.get $at) (local.get $half)) (local.get $half))))
        (call $read (i32.const 12) (local.get $at) (local.get $half))
        ;; The application sees how many there were.
        (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
        (i32.const 0)))
