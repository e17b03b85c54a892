;; both: fuel at loop. 150 loop heads in a row of which only the outermost is ever branched to.
(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (loop $out (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop
        (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop
        (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop
        (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop
        (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop
        (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop (loop
            (br $out)
        )))))))))))))))))))))))))
        )))))))))))))))))))))))))
        )))))))))))))))))))))))))
        )))))))))))))))))))))))))
        )))))))))))))))))))))))))
        ))))))))))))))))))))))))))
        (unreachable)))
