//! Lists of pipes for the modules of kind `pipe`: compiled for this CPU.
//!
//! A list is made into the loops that are expected to be fastest for full frames. With
//! the checksum in front it is only of use if that shares a loop with what follows.

use std::sync::{Arc, Mutex, PoisonError};

use ashway_codegen::pipe::{self, Placed, Plan, Portable, Primitive, parse};
use ashway_handler::native::{self, Passes, PassesError};
use ashway_modules::pipe::{Compile, List, Register, RunList};

/// Bytes of a message that a list is compiled for: what UDP carries in a full Ethernet
/// frame.
const BYTES: usize = 1472;

/// Compiles lists for this CPU.
pub(crate) struct Compiler;

impl Compile for Compiler {
    fn list(&self, text: &str) -> Result<List, (String, String)> {
        let list = parse(text).map_err(|error| (error.message, error.hint))?;
        let is_cipher =
            |placed: &&Placed| matches!(placed.pipe.primitive(), Some(Primitive::Cipher(_)));
        if let Some(cipher) = list.pipes().iter().find(is_cipher) {
            let message = format!(
                "`{}` would encrypt every message with the same bytes",
                cipher.name
            );
            let hint = "leave it out: a path has nothing to tell its messages apart by";
            return Err((message, hint.to_owned()));
        }
        let plan = plan(&list);
        let code = code(&list, plan.as_ref()).map_err(|error| {
            let hint = "does something forbid memory that can be executed?";
            (error.to_string(), hint.to_owned())
        })?;
        Ok(ready(&list, code))
    }

    fn summed(&self, text: &str) -> Option<List> {
        let list = parse(&format!("cksum16 | {text}")).ok()?;
        let plan = plan(&list);
        // A first loop of its own reads the message as often as UDP would.
        let shares = |plan: &Plan| plan.loops.first().is_some_and(|first| first.len() > 1);
        if !plan.as_ref().is_none_or(shares) {
            return None;
        }
        let code = code(&list, plan.as_ref()).ok()?;
        Some(ready(&list, code))
    }
}

fn plan(list: &pipe::List) -> Option<Plan> {
    native::cpu().map(|cpu| pipe::plan(list, cpu, BYTES))
}

/// Code of a list; the portable form if there is no plan.
fn code(list: &pipe::List, plan: Option<&Plan>) -> Result<Arc<dyn RunList>, PassesError> {
    let Some((plan, cpu)) = plan.zip(native::cpu()) else {
        return Ok(Arc::new(Slow(Mutex::new(Portable::new(list)))));
    };
    Ok(Arc::new(Fast {
        across: Passes::map(list, cpu, plan)?,
        in_place: Passes::map_in_place(list, cpu, plan)?,
    }))
}

fn ready(list: &pipe::List, code: Arc<dyn RunList>) -> List {
    let names = list.register_names().into_iter().zip(list.initial());
    let changes = list.pipes().iter().flat_map(|placed| {
        let updates = placed.pipe.updates();
        let registers = 0..placed.pipe.registers().len();
        registers.map(|at| updates.iter().any(|(id, _)| id.index() == at))
    });
    let registers = names.zip(changes);
    List {
        registers: registers
            .map(|((name, initial), changes)| Register {
                name,
                initial,
                changes,
            })
            .collect(),
        modifies: !list.no_mod(),
        code,
    }
}

/// Machine code.
struct Fast {
    across: Passes,
    in_place: Passes,
}

impl RunList for Fast {
    fn in_place(&self, registers: &mut [u64], data: &mut [u8]) {
        self.in_place.run_in_place(registers, data);
    }

    fn across(&self, registers: &mut [u64], source: &[u8], destination: &mut [u8]) {
        self.across.run(registers, source, destination);
    }
}

/// The portable form, for CPUs without AVX2. It needs room of its own, which one worker
/// at a time has.
struct Slow(Mutex<Portable>);

impl RunList for Slow {
    fn in_place(&self, registers: &mut [u64], data: &mut [u8]) {
        let mut portable = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        portable.run_in_place(registers, data);
    }

    fn across(&self, registers: &mut [u64], source: &[u8], destination: &mut [u8]) {
        let mut portable = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        portable.run(registers, source, destination);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::Offline;
    use ashway_path::attrs::Attrs;

    /// All texts whose code differs: modifying or not, in one loop or in order.
    #[test]
    fn the_list_with_the_checksum_gives_the_same_and_the_sum() {
        for text in [
            "copy",
            "crc32c",
            "xor(0xdeadbeef) | bswap32",
            "mask(7) | sum16 | add8(3)",
        ] {
            let list = Compiler.list(text).unwrap();
            let summed = Compiler.summed(text).unwrap();
            assert_eq!(list.modifies, summed.modifies);
            assert_eq!(list.registers.len() + 1, summed.registers.len(), "{text}");
            for len in [0, 1, 63, 64, 777, 1472] {
                let data: Vec<u8> = (0..len).map(|at| (at * 31) as u8).collect();
                let registers = |list: &List| -> Vec<u64> {
                    list.registers.iter().map(|one| one.initial).collect()
                };
                let (mut one, mut other) = (registers(&list), registers(&summed));
                let (mut in_place, mut across) = (data.clone(), vec![0; len]);
                list.code.in_place(&mut one, &mut in_place);
                summed.code.across(&mut other, &data, &mut across);
                assert_eq!(across, in_place, "{text}, {len}");
                assert_eq!(other[1..], one, "{text}, {len}");
                let sum = ashway_wire::checksum::Sum::new().bytes(&data).fold();
                assert_eq!(other[0], u64::from(sum.swap_bytes()), "{text}, {len}");
            }
        }
    }

    /// By XDP the entry program has verified what comes to a handler.
    #[test]
    fn a_pass_verifies_what_nobody_has_verified() {
        let stages = |mode: &str| {
            let text = format!(
                "[iface.b0]\nmode = '{mode}'\n[handler.h]\nfile = '/bin/sh'\n\
                 [module.mask]\nkind = 'pipe'\ndown = 'udp.up'\nlist = 'mask(7)'\n\
                 [module.app]\nkind = 'handler'\nhandler = 'h'\ndown = 'mask.up'\n\
                 [path.p]\niface = 'b0'\nmatch = 'udp and dst port 7'\nhandler = 'h'\n"
            );
            let file = std::path::Path::new("test.toml");
            let config = crate::parse(file, text.as_bytes()).unwrap();
            let graph = config.graph(&Offline(&config)).unwrap();
            let path = &config.paths[0];
            let created = graph.create(path, "b0", Attrs::new()).unwrap();
            let stages = created.path.stages();
            let names: Vec<String> = stages.map(|stage| stage.name().to_owned()).collect();
            names
        };
        assert_eq!(stages("packet"), ["app", "datagram+pipe"]);
        assert_eq!(stages("native"), ["app", "mask", "datagram"]);
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_what_to_do() {
        let refused = |text: &str| Compiler.list(text).err().unwrap();
        assert_eq!(refused("bswap33").0, "there is no pipe `bswap33`");
        let key = "00".repeat(32);
        let nonce = "00".repeat(12);
        let (message, _) = refused(&format!("copy | chacha20({key},{nonce},1)"));
        assert_eq!(
            message,
            "`chacha20` would encrypt every message with the same bytes"
        );
        let longest = vec!["copy"; 32].join("|");
        assert!(Compiler.list(&longest).is_ok());
        assert!(Compiler.summed(&longest).is_none());
    }
}
