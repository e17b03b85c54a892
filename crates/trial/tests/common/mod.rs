//! The engines that tests compare.

#![allow(dead_code, reason = "each test file uses a part")]

use ashway_rig::skip::root_for_a_part;
use ashway_trial::{Engine, MemoryChoice, Setup};

/// The engines that can run here, with their names for messages.
pub(crate) fn engines() -> Vec<(String, Engine, Setup)> {
    let setup = Setup::default();
    let mut engines = vec![
        ("user".to_owned(), Engine::User, setup),
        ("interpreter".to_owned(), Engine::Interpreter, setup),
    ];
    if root_for_a_part() {
        for memory in [MemoryChoice::Arena, MemoryChoice::Array] {
            for locals in [None, Some(true)] {
                let setup = Setup {
                    memory,
                    locals_in_memory: locals,
                    ..setup
                };
                engines.push((
                    format!("kernel, {memory:?}, {locals:?}"),
                    Engine::Kernel,
                    setup,
                ));
            }
        }
    }
    engines
}

/// A module in the text format.
pub(crate) fn wasm(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}
