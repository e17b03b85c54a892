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
//! * every cycle takes fuel or ticks, or has a constant bound ([`bound`]); fuel
//!   never grows, and there is a look at the clock between slices ([`fuel`]);
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
mod bound;
mod branch;
mod call;
mod fuel;
mod graph;
mod state;
mod step;
mod value;
mod violation;

pub use violation::{Rule, Violation};

use crate::bpf::form::Form;
use crate::bpf::{Image, MapRef};
use crate::bug::{self, Bug};
use crate::promote::{Budget, MemoryKind};
use ashway_abi::memory::Layout;
use graph::Graph;
use state::State;
use std::collections::BTreeSet;
use step::{Facts, Step};
use violation::Fail;

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
    const fn names(&self, map: MapRef) -> bool {
        match map {
            MapRef::Context | MapRef::Memory => true,
            MapRef::Counters | MapRef::Wake | MapRef::Trusted => {
                matches!(self.around, Around::Instance)
            }
            MapRef::Slots => false,
        }
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
    /// Places that tick.
    pub ticks: usize,
    /// Helper calls.
    pub helpers: usize,
}

/// After so many visits of a block, numbers that still grow become unknown.
const WIDEN_AFTER: u32 = 3;

/// Visits of one block that no program of ours needs.
const MOST_VISITS: u32 = 100;

/// Checks a program. Pure; takes time and memory in proportion to it, a few
/// milliseconds for some thousand instructions. Allocates.
///
/// # Errors
///
/// [`Violation`]: the first place that is not as it must be.
pub fn check(image: &Image, shape: &Shape) -> Result<Report, Violation> {
    let graph = Graph::new(image)?;
    for used in &image.maps {
        if !matches!(graph.code.get(used.insn), Some(Some((insn, Form::Imm64 { .. }))) if insn.src != 0)
        {
            let fail = Fail::new(Rule::Map, "no instruction there names a map");
            return Err(Violation::at(used.insn, fail, image));
        }
    }
    let facts = follow(image, shape, &graph)?;
    if let Some(insn) = bound::unbounded(&graph, &facts)
        && !bug::is(Bug::CheckNoCharge)
    {
        let fail = Fail::new(Rule::Cycle, "the loop takes no fuel and has no bound");
        return Err(Violation::at(insn, fail, image));
    }
    let sum = |of: fn(&Facts) -> u32| facts.iter().map(|facts| of(facts) as usize).sum();
    Ok(Report {
        insns: image.insns.len(),
        blocks: sum(|facts| facts.reached.into()),
        charges: sum(|facts| facts.charges),
        ticks: sum(|facts| facts.ticks),
        helpers: sum(|facts| facts.helpers),
    })
}

/// Follows every way until nothing changes; returns what each block does.
fn follow(image: &Image, shape: &Shape, graph: &Graph) -> Result<Vec<Facts>, Violation> {
    let count = graph.blocks.len();
    let order = graph.order();
    let mut block_at = vec![0; count];
    for (block, place) in order.iter().enumerate() {
        if let Some(place) = place {
            block_at[*place] = block;
        }
    }
    let mut facts = vec![Facts::default(); count];
    let mut visits = vec![0; count];
    let mut states: Vec<Option<State>> = vec![None; count];
    states[0] = Some(State::entry(shape.around == Around::Stub));
    // By place in the order, so that most ways into a block are known first.
    let mut pending = BTreeSet::from([0]);
    while let Some(place) = pending.pop_first() {
        let number = block_at[place];
        let block = &graph.blocks[number];
        let Some(state) = states[number].clone() else {
            continue;
        };
        let mut step = Step {
            image,
            shape,
            at: block.start,
            state,
            facts: Facts::default(),
        };
        visits[number] += 1;
        let fail = |insn, fail| Violation::at(insn, fail, image);
        if visits[number] > MOST_VISITS {
            let what = "its state does not settle";
            return Err(fail(block.start, Fail::new(Rule::Size, what)));
        }
        let mut last = None;
        for at in block.start..block.end {
            if let Some((insn, form)) = graph.code[at] {
                step.at = at;
                step.insn(insn, form).map_err(|f| fail(at, f))?;
                last = Some((insn, form));
            }
        }
        facts[number] = Facts {
            reached: true,
            ..step.facts
        };
        let (taken, next) = match last {
            Some((insn, Form::Branch { wide, op, src })) => {
                let ways = step.branch(wide, op, insn.dst, src);
                let [taken, next] = ways.map_err(|f| fail(step.at, f))?;
                (taken, next)
            }
            _ => (Some(step.state.clone()), Some(step.state)),
        };
        for (to, new) in [(block.next, next), (block.taken, taken)] {
            let (Some(to), Some(new)) = (to, new) else {
                continue;
            };
            let changed = match &mut states[to] {
                // With one way in, what holds there is what holds at its start.
                Some(state) if graph.blocks[to].ways_in > 1 => {
                    state.join(&new, to, visits[to] > WIDEN_AFTER)
                }
                known => {
                    let changed = known.as_ref() != Some(&new);
                    *known = Some(new);
                    changed
                }
            };
            if changed && let Some(place) = order[to] {
                pending.insert(place);
            }
        }
    }
    Ok(facts)
}
