//! Two checks where one would do, if nobody ever made a mistake: the second of
//! them does not rely on the first.

use super::programs::{CPUS, KINDS, functions, stub_of};
use ashway_abi::Cause;
use ashway_abi::MemoryKind;
use ashway_check::bpf::interp::Machine;
use ashway_codegen::normalise::ir::OpKind;
use ashway_codegen::normalise::{Limits, normalise};
use ashway_codegen::stub;
use wasmparser::Operator;

/// `memory.init` has checked the segment's bounds, with a word that the
/// application can write; here the segment is not where it was.
#[test]
fn a_copy_out_of_the_state_region_keeps_to_it_by_itself() {
    let wasm = functions(
        r#"(data $d "seven b")
        (func $f (param i32) (result i32)
            (memory.init $d (i32.const 0) (local.get 0) (i32.const 4)) (data.drop $d)
            (i32.const 0))"#,
    );
    for kind in KINDS {
        let mut module = normalise(&wasm, &Limits::default()).unwrap();
        let end = stub::layout(&module).state_bytes as i32;
        for (at, stopped) in [(end - 5, None), (end - 4, Some(Cause::MemoryBounds))] {
            for function in &mut module.functions {
                let is_copy = |op: &_| matches!(op, OpKind::StateCopy);
                let copy = function.code.iter().position(|op| is_copy(&op.kind));
                // Where it is, plus the offset; the length; the copy.
                if let Some(copy) = copy {
                    let place = &mut function.code[copy - 3].kind;
                    assert!(matches!(place, OpKind::Wasm(Operator::I32Const { .. })));
                    *place = OpKind::Wasm(Operator::I32Const { value: at });
                }
            }
            let made = stub_of("init", &module, kind, false, CPUS).unwrap();
            let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), made.memory.len());
            machine.array_mode = kind == MemoryKind::Array;
            machine.memory_mut().copy_from_slice(&made.memory);
            // The offset is the message's length.
            machine.run(&made.image, &stub::frame(b"1")).unwrap();
            let outcome = stub::outcome(machine.packet()).unwrap();
            let cause = outcome.result.err().map(|(cause, _)| cause);
            assert_eq!(cause, stopped, "{kind:?}: {at}");
        }
    }
}
