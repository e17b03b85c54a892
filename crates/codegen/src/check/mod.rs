//! The independent checker: the last look at a finished program before the
//! kernel's (DESIGN 5).
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
//! * pointers go to stack slots only;
//! * a handler runs under the instance's lock, which every way out releases.
//!
//! It is an abstract interpretation: blocks in topological order until nothing
//! changes, with ranges for numbers that are widened where they keep growing.
//! What it does not see: whether the handler's own bounds and traps are those
//! of its Wasm (conformance tests do), and what the entry and exit programs do,
//! which no handler has a part in.

mod access;
mod arith;
mod branch;
mod call;
mod fuel;
mod state;
mod step;
mod value;
mod violation;

pub use violation::{Rule, Violation};

use crate::bpf::form::Form;
use crate::bpf::graph::Graph;
use crate::bpf::{Image, MapRef, MapUse};
use crate::bug::{self, Bug};
use crate::promote::{Budget, MemoryKind};
use ashway_abi::memory::Layout;
use state::State;
use step::Step;

/// What is around a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// [`instance`](crate::instance): paths, lock, counters, rings.
    Instance,
    /// [`stub`](crate::stub): nothing of that.
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
}

impl Shape {
    /// Whether a program may name the map.
    fn names(&self, map: MapRef) -> bool {
        let always = matches!(map, MapRef::Context | MapRef::Memory);
        always || self.around == Around::Instance && map != MapRef::Slots
    }
}

/// What a program was found to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Instructions.
    pub insns: usize,
    /// Blocks that can be reached.
    pub blocks: usize,
    /// Places that take fuel.
    pub charges: usize,
    /// Places that tick, or outside a handler where the kernel ends a loop.
    pub ticks: usize,
    /// Helper calls.
    pub helpers: usize,
}

/// After so many visits of a block, numbers that still grow become unknown.
const WIDEN_AFTER: u32 = 3;

/// Checks a program. Pure; takes time and memory in proportion to it, a few
/// milliseconds for some thousand instructions. Allocates.
///
/// # Errors
///
/// [`Violation`]: the first place that is not as it must be.
pub fn check(image: &Image, shape: &Shape) -> Result<Report, Violation> {
    let graph = Graph::new(image)
        .map_err(|(insn, what)| Violation::at(insn, Rule::Instruction, what, image))?;
    let names_one = |used: &&MapUse| match graph.code.get(used.insn) {
        Some(Some((insn, Form::Imm64 { .. }))) => insn.src != 0,
        _ => false,
    };
    if let Some(used) = image.maps.iter().find(|used| !names_one(used)) {
        let what = format!("{:?} is named by nothing there", used.map);
        return Err(Violation::at(used.insn, Rule::Map, what, image));
    }
    // What each block does that can be reached.
    let mut found = vec![None; graph.blocks.len()];
    let follow = |number: usize, state: State| {
        let block = &graph.blocks[number];
        let mut step = Step {
            image,
            shape,
            at: block.start,
            state,
            found: Report::default(),
        };
        let ways = step
            .block(&graph.code[block.start..block.end])
            .map_err(|rule| Violation::at(step.at, rule, step.describe(), image))?;
        found[number] = Some(step.found);
        Ok(ways)
    };
    let entry = State::entry(shape.around == Around::Stub);
    graph.follow(entry, follow, |state, new, block, visits| {
        state.join(new, block, visits > WIDEN_AFTER)
    })?;
    let free = |found: Report| found.charges + found.ticks == 0;
    if let Some(block) = graph.cycle(|block| found[block].is_some_and(free))
        && !bug::is(Bug::CheckNoCharge)
    {
        let (start, what) = (
            graph.blocks[block].start,
            "nothing in it takes fuel or ticks",
        );
        return Err(Violation::at(start, Rule::Cycle, what, image));
    }
    let sum = |of: fn(&Report) -> usize| found.iter().flatten().map(of).sum();
    Ok(Report {
        insns: image.insns.len(),
        blocks: sum(|_| 1),
        charges: sum(|block| block.charges),
        ticks: sum(|block| block.ticks),
        helpers: sum(|block| block.helpers),
    })
}
