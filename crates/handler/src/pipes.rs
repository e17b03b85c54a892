//! The lists of pipes that a module runs.
//!
//! Compiled once for each module, for this CPU; without AVX2 the portable form does
//! it, over a copy. The registers lie in the state region, where the kernel tier finds
//! them, too: they are copied out before a run and back behind it, because the
//! application can write them meanwhile.

use std::sync::Arc;

use ashway_abi::HostCall;
use ashway_abi::memory::WASM_PAGE;
use ashway_codegen::normalise::Module;
use ashway_codegen::pipe::{Cpu, List, Portable, plan};

use crate::bug::{self, Bug};
use crate::memory::{Lent, Window};
use crate::native::{self, Passes};

/// Bytes of a message that a list is cut into loops for: what a frame has.
const BYTES: usize = 1472;

/// A list, compiled.
pub(crate) struct Code {
    list: List,
    /// Offset in the state region of its first register.
    registers: usize,
    /// From one place to another, and in place, where a list that modifies nothing
    /// writes nothing. `None` where there is no native form.
    native: Option<[Passes; 2]>,
}

/// Compiles a module's lists, for this CPU. Some 100 us for each.
pub(crate) fn compile(module: &Module<'_>) -> Arc<[Code]> {
    compile_for(module, native::cpu())
}

/// As [`compile`], for a CPU that may have no native form.
fn compile_for(module: &Module<'_>, cpu: Option<Cpu>) -> Arc<[Code]> {
    let code = module.pipes.lists.iter().map(|one| {
        let native = cpu.and_then(|cpu| {
            let plan = plan(&one.list, cpu, BYTES);
            let copies = Passes::map(&one.list, cpu, &plan).ok()?;
            let in_place = Passes::map_in_place(&one.list, cpu, &plan).ok()?;
            Some([copies, in_place])
        });
        Code {
            list: one.list.clone(),
            registers: one.place(&module.pipes) as usize,
            native,
        }
    });
    code.collect()
}

/// What an instance runs its lists with.
pub(crate) struct Pipes {
    code: Arc<[Code]>,
    portable: Vec<Option<Portable>>,
    guest: Window,
    /// The message of the activation that runs.
    pub(crate) message: Lent,
    state: Window,
    /// The registers of a run.
    registers: Vec<u64>,
    /// The data of a run in the portable form.
    data: Vec<u8>,
}

/// The module named something that is not there: a bug of the encoder.
#[derive(Debug, thiserror::Error)]
#[error("a run of pipes that is not there: {0:?}")]
pub(crate) struct NoList(pub(crate) ListCall);

/// A run, as the module asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListCall {
    pub(crate) call: u32,
    pub(crate) list: u32,
    /// Where the message's bytes are among all messages.
    pub(crate) at: u32,
    pub(crate) pointer: u32,
    pub(crate) len: u32,
    /// Pages that the memory has now.
    pub(crate) pages: u32,
}

impl Pipes {
    pub(crate) fn new(code: Arc<[Code]>, guest: Window, state: Window) -> Self {
        let portable = code.iter().map(|one| match one.native {
            Some(_) => None,
            None => Some(Portable::new(&one.list)),
        });
        Self {
            portable: portable.collect(),
            code,
            guest,
            message: Lent::NONE,
            state,
            registers: Vec::new(),
            data: Vec::new(),
        }
    }

    /// Runs a list; false, and nothing done, if the memory has no such bytes. Bounded
    /// by the length; allocates in the first runs at most.
    ///
    /// # Errors
    ///
    /// [`NoList`].
    pub(crate) fn run(&mut self, run: ListCall) -> Result<bool, NoList> {
        let end = u64::from(run.pointer) + u64::from(run.len);
        let there = u64::from(run.pages) * WASM_PAGE as u64;
        if end > there && !bug::is(Bug::PipeOutside) {
            return Ok(false);
        }
        self.inside(run).ok_or(NoList(run))?;
        Ok(true)
    }

    fn inside(&mut self, run: ListCall) -> Option<()> {
        let len = run.len as usize;
        let code = self.code.get(run.list as usize)?;
        let memory = self.guest.span(run.pointer as usize, len)?;
        let in_place = run.call == HostCall::PipeInPlace as u32;
        let (from, to) = if in_place {
            (memory, memory)
        } else {
            let message = self.message.span(run.at as usize, len)?;
            if run.call == HostCall::PipeWrite as u32 {
                (memory, message)
            } else {
                (message, memory)
            }
        };
        let bytes = 8 * code.list.register_count();
        let kept = self.state.span(code.registers, bytes)?;
        self.registers.resize(code.list.register_count(), 0);
        kept.words_to(&mut self.registers);
        match (&code.native, &mut self.portable[run.list as usize]) {
            (Some(passes), _) => {
                from.pass(&passes[usize::from(in_place)], &mut self.registers, to);
            }
            (None, Some(portable)) => {
                self.data.resize(len, 0);
                from.copy_to(&mut self.data);
                portable.run_in_place(&mut self.registers, &mut self.data);
                if !(in_place && code.list.no_mod()) {
                    to.copy_from(&self.data);
                }
            }
            (None, None) => return None,
        }
        if !bug::is(Bug::RegistersLost) {
            kept.words_from(&self.registers);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Region;
    use ashway_codegen::normalise::{Limits, normalise};
    use ashway_codegen::pipe::interpret;
    use ashway_memory::Memory;
    use ashway_memory::messages::{self, Buffer};

    const GUEST: usize = 2 * WASM_PAGE;
    const TO: usize = 4096;

    /// A run over 1000 bytes, which lie at this number, in each form that there is here,
    /// behind a memory that has one page of two.
    fn each(text: &str, holds: impl Fn(&mut Pipes, usize, &Window, &List) -> bool) -> bool {
        let wasm = format!(
            r#"(module (memory (export "memory") 1 2)
                (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0))
                (@custom "ashway.pipes" "{text}"))"#
        );
        let wasm = wat::parse_str(wasm).unwrap();
        let module = normalise(&wasm, &Limits::default()).unwrap();
        [native::cpu(), None].into_iter().all(|cpu| {
            let memory = Memory::anonymous(GUEST + WASM_PAGE).unwrap();
            let region: Arc<dyn Region> = Arc::new(memory);
            let guest = Window::new(&region, 0, GUEST).unwrap();
            let state = Window::new(&region, GUEST, WASM_PAGE).unwrap();
            let mut message = Buffer::new(1000);
            message[..1000].fill(7);
            let space = messages::space().unwrap();
            let at = space.place_of(&mut message).unwrap();
            let code = compile_for(&module, cpu);
            let mut pipes = Pipes::new(code, guest.clone(), state);
            pipes.message = Lent::new(&mut message[..1000], at);
            holds(&mut pipes, at, &guest, &module.pipes.lists[0].list)
        })
    }

    fn run(call: HostCall, at: usize, pointer: usize, len: u32) -> ListCall {
        ListCall {
            call: call as u32,
            list: 0,
            at: at as u32,
            pointer: pointer as u32,
            len,
            pages: 1,
        }
    }

    /// What the list means, twice, with what the first run left.
    fn continues(text: &str) -> bool {
        each(text, |pipes, at, guest, list| {
            let mut registers = list.initial();
            let first = pipes.code[0].registers;
            let bytes = registers.iter().flat_map(|word| word.to_le_bytes());
            pipes
                .state
                .write(first, &bytes.collect::<Vec<_>>())
                .unwrap();
            let mut found = Vec::new();
            let mut kept = vec![0; registers.len()];
            for len in [64, 1000] {
                let mut data = vec![7; len];
                interpret(list, &mut registers, &mut data);
                assert!(
                    pipes
                        .run(run(HostCall::PipeRead, at, TO, len as u32))
                        .unwrap()
                );
                let mut there = vec![0; len];
                guest.span(TO, len).unwrap().copy_to(&mut there);
                let span = pipes.state.span(first, 8 * kept.len()).unwrap();
                span.words_to(&mut kept);
                found.push(there == data && kept == registers);
            }
            found == [true, true]
        })
    }

    /// Nothing of what is behind the page that there is.
    fn stays_inside(text: &str) -> bool {
        each(text, |pipes, at, guest, _| {
            let calls = [
                HostCall::PipeRead,
                HostCall::PipeWrite,
                HostCall::PipeInPlace,
            ];
            calls.into_iter().all(|call| {
                let refused = !pipes.run(run(call, at, WASM_PAGE - 10, 11)).unwrap();
                let mut there = [0; 32];
                guest.span(WASM_PAGE - 10, 32).unwrap().copy_to(&mut there);
                refused && there == [0; 32]
            })
        })
    }

    #[test]
    fn of_messages_only_the_one_of_the_activation_is_there() {
        assert!(each("xor8(9)", |pipes, at, _, _| {
            let mut of = |at, len| pipes.run(run(HostCall::PipeRead, at, TO, len)).is_ok();
            let here = of(at, 1000) && of(at + 999, 1);
            let others = of(at - 1, 1) || of(at, 1001) || of(at + 1000, 1);
            pipes.message = Lent::NONE;
            here && !others && pipes.run(run(HostCall::PipeRead, at, TO, 1)).is_err()
        }));
    }

    #[test]
    fn both_forms_are_what_the_list_means() {
        for text in [
            "cksum16",
            "crc32c | xor8(9)",
            "mask(0x01020304) | sum8",
            "chacha20(000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f,000000090000004a00000000,1)",
        ] {
            assert!(continues(text), "{text}");
            assert!(stays_inside(text), "{text}");
        }
    }

    #[test]
    fn each_bug_is_noticed() {
        let continues = || continues("cksum16 | mask(0x01020304)");
        let inside = || stays_inside("xor8(9)");
        assert!(!bug::with(Bug::RegistersLost, continues));
        assert!(!bug::with(Bug::PipeOutside, inside));
        assert!(continues() && inside());
    }
}
