//! What we make is accepted.

use super::programs::{
    KINDS, handlers, instance_program, module, stub_program, stub_programs, user_program,
};
use ashway_codegen::bpf::print;

#[test]
fn every_handler_is_accepted_with_the_small_program_around_it() {
    let made = stub_programs();
    assert!(made.len() > 80);
    let mut bad = 0;
    for made in &made {
        match made.check() {
            Ok(report) => assert!(report.blocks > 0 && report.helpers > 0, "{}", made.name),
            Err(violation) => {
                bad += 1;
                if std::env::var("SHOW").is_ok() {
                    println!("{}", print(&made.image));
                }
                println!("{}: {violation}", made.name);
            }
        }
    }
    assert_eq!(bad, 0);
}

#[test]
fn every_handler_is_accepted_as_an_instances_program() {
    let mut bad = 0;
    for (name, wasm) in handlers() {
        for kind in KINDS {
            for setting in [(1, 1, true), (4, 3, true), (2, 60, false)] {
                let Ok(made) = instance_program(&name, &wasm, kind, setting) else {
                    continue;
                };
                if let Err(violation) = made.check() {
                    bad += 1;
                    if std::env::var("SHOW").is_ok() {
                        println!("{}", print(&made.image));
                    }
                    println!("{}: {violation}", made.name);
                }
            }
        }
    }
    assert_eq!(bad, 0);
}

#[test]
fn the_user_tiers_program_is_accepted() {
    for kind in KINDS {
        for (rings, paths) in [(1, 1), (3, 2), (64, 60)] {
            let made = user_program(kind, rings, paths);
            let found = made.check();
            assert!(
                found.is_ok(),
                "{}: {}\n{}",
                made.name,
                found.unwrap_err(),
                print(&made.image)
            );
        }
    }
}

/// A handler of some 10,000 instructions.
fn large() -> Vec<u8> {
    let turn = "local.get $i i32.load8_u local.get $j i32.add local.tee $j
        i32.const 3 i32.and i32.eqz if
            local.get $j local.get $w i64.store offset=8
            local.get $w i64.const 5 i64.add local.set $w
        end
        loop
            local.get $i i32.const 1 i32.add local.tee $i i32.const 9 i32.rem_u br_if 0
        end ";
    module(&format!("{} local.get $j", turn.repeat(200)))
}

/// A large program takes milliseconds, and ten times as much takes ten times
/// as long, with much room for a busy machine.
#[test]
fn a_large_program_is_checked_quickly() {
    for kind in KINDS {
        let made = stub_program("large", &large(), kind, false).unwrap();
        let begin = std::time::Instant::now();
        let report = made.check().unwrap();
        let took = begin.elapsed();
        println!("{kind:?}: {report:?} in {took:?}");
        assert!(report.insns > 7_000, "{report:?}");
        assert!(took.as_millis() < 1_000, "{took:?}");
    }
}
