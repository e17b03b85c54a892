;; both: fuel at loop. Asks for more memory for ever; the answer is no from the second time on.
(module
    (memory (export "memory") 1 2)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $again (drop (memory.grow (i32.const 1))) (br $again))
        (unreachable)))
