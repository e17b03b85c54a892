;; both: unreachable, then memory_bounds, then message_bounds, then divide_by_zero, then overflow, then indirect_call, then stack, then fuel, then bad_verdict, then unaligned, then table_bounds, then abort. Another end with each message.
(module
    (import "ashway" "msg_load8" (func $msg_load8 (param i32) (result i32)))
    (table 1 1 funcref)
    (global $n (mut i32) (i32.const -1))
    (func $deeper (call $deeper) (call $deeper))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (global.set $n (i32.add (global.get $n) (i32.const 1)))
        (block $abort (block $table (block $unaligned (block $verdict (block $fuel (block $stack
        (block $indirect (block $overflow (block $divide (block $message (block $memory (block $unreachable
            (br_table $unreachable $memory $message $divide $overflow $indirect $stack $fuel $verdict
                $unaligned $table $abort (global.get $n)))
            (unreachable))
            (return (i32.load (i32.const -1))))
            (return (call $msg_load8 (i32.const 0x7fffffff))))
            (return (i32.div_u (i32.const 1) (local.get $channel))))
            (return (i32.div_s (i32.const 0x80000000) (i32.sub (local.get $channel) (i32.const 1)))))
            (return (call_indirect (result i32) (i32.const 0))))
            (call $deeper) (return (i32.const 0)))
            (loop $again (br $again)))
            (return (i32.const 1000)))
            (return (i32.atomic.load (i32.const 2))))
            (return (ref.is_null (table.get (i32.const 1)))))
        (i32.const 6)))
