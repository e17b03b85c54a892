;; both: fuel at loop. Waits for a word of its memory that only an application could set.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again (br_if $again (i32.eqz (i32.load (i32.const 64)))))
        (i32.const 0)))
