;; Wasmtime merges the load into the operator that takes its value, and names
;; that one as the place of the stop: `popcnt r, [m]`. All else is equal, and
;; promoted code names the load.
(module
  (memory 1 1)
  (func (export "merged") (param i32) (result i64)
    (i64.popcnt (i64.load offset=65535 (local.get 0))))
  (func (export "certain") (param i32) (result i32)
    (if (result i32) (local.get 0)
      (then (i32.load offset=65533 (i32.const 0)))
      (else (i32.div_u (i32.const 7) (i32.const 0))))))
