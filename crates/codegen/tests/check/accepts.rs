//! What we make is accepted.

use super::programs::{
    KINDS, LISTS, handlers, instance_program, module, observed_program, pipes, stub_program,
    stub_programs, user_program,
};
use ashway_check::bpf::print;

#[test]
fn every_handler_is_accepted_with_the_small_program_around_it() {
    let made = stub_programs();
    assert!(made.len() > 80);
    let mut bad = 0;
    for made in &made {
        match made.check() {
            Ok(report) => assert!(report.steps > 0, "{}", made.name),
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
            // With four rings or more, the path has a share.
            let settings = [(1, 1, true), (4, 1, false), (4, 3, true), (2, 60, false)];
            let plain = settings.map(|setting| instance_program(&name, &wasm, kind, setting));
            let observed = [observed_program(&name, &wasm, kind, (4, 3, true))];
            for made in plain.into_iter().chain(observed) {
                let Ok(made) = made else {
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

/// The loop that is made for a list at run time, too: its accesses go where they may,
/// and each turn is charged.
#[test]
fn runs_of_pipes_are_accepted() {
    for list in LISTS {
        for kind in KINDS {
            let made = stub_program(list, &pipes(list), kind, false).unwrap();
            let found = made.check();
            assert!(found.is_ok(), "{}: {}", made.name, found.unwrap_err());
        }
    }
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

/// A handler with so many ifs and loops one after the other, all in a loop.
fn large(turns: usize) -> Vec<u8> {
    let turn = "local.get $i i32.load8_u local.get $j i32.add local.tee $j
        i32.const 3 i32.and i32.eqz if
            local.get $j local.get $w i64.store offset=8
            local.get $w i64.const 5 i64.add local.set $w
        end
        loop
            local.get $i i32.const 1 i32.add local.tee $i i32.const 9 i32.rem_u br_if 0
        end ";
    let turns = turn.repeat(turns);
    module(&format!(
        "loop {turns} local.get $j i32.const 99 i32.lt_u br_if 0 end local.get $j"
    ))
}

/// Each instruction is followed a few times, however many there are. (Time and
/// memory are in `tests/conformance`, where the largest programs are.)
#[test]
fn work_grows_as_the_program_does() {
    for kind in KINDS {
        let [few, many] = [50, 400].map(|turns| {
            let made = stub_program("large", &large(turns), kind, false).unwrap();
            let report = made.check().unwrap();
            println!("{kind:?}: {report:?}");
            f64::from(report.steps) / f64::from(report.insns)
        });
        assert!(few < 10.0 && many < 1.1 * few, "{few} {many}");
    }
}
