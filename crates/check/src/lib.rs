//! The independent checker: the last look at a finished program before the
//! kernel's.
//!
//! The translator may have mistakes; the kernel's verifier forgives none that
//! endanger the kernel, but it knows nothing of fuel, of the lock, or of which
//! of its fields a program should leave alone, and an arena hides from it where
//! an access goes. This pass reads only the instructions and the maps they
//! name, shares nothing with the translator but the instructions' decoder, and
//! accepts only what it can follow:
//!
//! * every access goes to the arena, inside the memory's map value, to a part
//!   of the packet that a comparison covers, to a stack slot, to the context's
//!   frames or a field that may be written, or to the trusted words and
//!   counters in the few ways that trusted code has ([`access`]);
//! * every cycle takes fuel or ticks; fuel never grows, and there is a look at
//!   the clock between slices ([`fuel`]). Where the lock is not held, and so no
//!   handler runs, `may_goto` will do, which the kernel ends;
//! * only our helpers are called, with what they take ([`call`]);
//! * a subprogram sees to the fuel and the clock, and changes nothing else ([`subprogram`]);
//! * pointers go to stack slots only;
//! * a handler runs under the instance's lock, which every way out releases.
//!
//! It is an abstract interpretation: blocks in topological order until nothing
//! changes, with ranges for numbers that are widened where they keep growing.
//! What it does not see: whether the handler's own bounds and traps are those
//! of its Wasm (conformance tests do), and what the entry and exit programs do,
//! which no handler has a part in.

#![forbid(unsafe_code)]

mod access;
mod arith;
pub mod bpf;
mod branch;
#[cfg(not(ashway_bugs))]
mod bug;
#[cfg(ashway_bugs)]
pub mod bug;
mod call;
mod fuel;
mod state;
mod step;
mod subprogram;
mod value;
mod violation;

pub use violation::{Rule, Violation};

use crate::bpf::form::{Form, form};
use crate::bpf::graph::Graph;
use crate::bpf::{Image, Insn, MapRef, MapUse};
use crate::bug::Bug;
use ashway_abi::memory::Layout;
use ashway_abi::{Budget, MemoryKind, QueueLayout};
use state::State;
use std::cell::Cell;
use std::collections::BTreeMap;
use step::Step;
use subprogram::Within;

/// What is around a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// An instance with a queue of this layout: paths, lock, counters, rings
    /// (`codegen/src/instance`).
    Instance(QueueLayout),
    /// A stub: nothing of that (`codegen/src/stub.rs`).
    Stub,
}

/// What a program was made for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What is around the handler.
    pub around: Around,
    /// What its memory is.
    pub memory: MemoryKind,
    /// Where the memory's regions lie.
    pub layout: Layout,
    /// Contexts there are: one for each possible CPU.
    pub cpus: u32,
    /// How much an activation may use.
    pub budget: Budget,
    /// Whether the handler may change a message's length.
    pub resizes: bool,
}

impl Shape {
    /// Whether a program may name the map.
    fn names(&self, map: MapRef) -> bool {
        let always = matches!(map, MapRef::Context | MapRef::Memory);
        always
            || matches!(self.around, Around::Instance(_))
                && matches!(
                    map,
                    MapRef::Counters | MapRef::Wake | MapRef::Trusted | MapRef::Notes
                )
    }
}

/// What a program was found to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Instructions.
    pub insns: u32,
    /// Places that take fuel or tick; outside a handler also `may_goto`.
    pub charges: u32,
    /// Instructions that were followed, each as often as it was.
    pub steps: u32,
}

/// Instructions that are followed, of some 0.2 us each: twice as many as the
/// kernel's verifier takes (`BPF_COMPLEXITY_LIMIT_INSNS`).
const MOST_STEPS: u32 = 1 << 21;

/// Checks a program. Pure; allocates. Less than a second and 64 MiB for the
/// largest that the kernel loads (`tests/conformance/tests/hostile.rs`).
///
/// # Errors
///
/// [`Violation`]: the first place that is not as it must be.
pub fn check(image: &Image, shape: &Shape) -> Result<Report, Violation> {
    let graph = Graph::new(image)
        .map_err(|(insn, what)| Violation::at(insn, Rule::Instruction, what, image))?;
    let names_one = |used: &&MapUse| {
        let insn = image.insns.get(used.insn).map(|raw| Insn::decode(*raw));
        insn.is_some_and(|insn| insn.src != 0 && matches!(form(insn), Some(Form::Imm64 { .. })))
    };
    if let Some(used) = image.maps.iter().find(|used| !names_one(used)) {
        let what = format!("{:?} is named by nothing there", used.map);
        return Err(Violation::at(used.insn, Rule::Map, what, image));
    }
    // Charges of each block that can be reached, whenever it is.
    let mut charges: Vec<Option<u32>> = vec![None; graph.blocks.len()];
    let mut steps = 0;
    let mut follow = |begin: (usize, State), within: Within<'_>| {
        let block = |number: usize, state: State| {
            let block = &graph.blocks[number];
            let mut step = Step {
                image,
                shape,
                at: block.start as usize,
                state,
                charges: 0,
                within,
            };
            let ways = step
                .block(block.end as usize)
                .map_err(|rule| Violation::at(step.at, rule, step.describe(), image))?;
            let before = charges[number].unwrap_or(step.charges);
            charges[number] = Some(step.charges.min(before));
            Ok(ways)
        };
        let most = MOST_STEPS - steps;
        let followed = graph.follow(begin, block, State::join, most)?;
        let too_much = || Violation::at(0, Rule::Work, "there is too much", image);
        steps += followed.ok_or_else(too_much)?;
        Ok(())
    };
    let mut subprograms = BTreeMap::new();
    for (insn, block) in &graph.subprograms {
        let dues = Cell::new(0);
        follow((*block, State::subprogram()), Within::Subprogram(&dues))?;
        subprograms.insert(*insn, dues.get());
    }
    let entry = State::entry(shape.around == Around::Stub);
    follow((graph.entry, entry), Within::Program(&subprograms))?;
    if let Some(block) = graph.cycle(|block| charges[block] == Some(0))
        && !bug::is(Bug::CheckNoCharge)
    {
        let (at, what) = (graph.blocks[block].start, "nothing takes fuel or ticks");
        return Err(Violation::at(at as usize, Rule::Cycle, what, image));
    }
    Ok(Report {
        insns: image.insns.len() as u32,
        charges: charges.into_iter().flatten().sum(),
        steps,
    })
}
