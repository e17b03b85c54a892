//! Where fuel is taken, and how much.
//!
//! A loop's head takes the cost of one turn, inner loops excluded, because
//! they charge themselves. A function that is called from more than one place,
//! in a loop, recursively, by number or through a table takes its straight-line
//! cost at its entry, and so does whom such a function calls. What is left runs
//! at most once per activation, and takes nothing, as long as all of it
//! together stays under [`UNCHARGED_MOST`]; the commonest small handlers
//! therefore carry no charge at all.
//!
//! So every cycle of the control flow, that of the merged eBPF program
//! included, passes a charge: there, a function called from two places seems
//! to return from the second to behind the first.
//!
//! A long stretch is charged in parts of about [`STRETCH`] units, because the
//! kernel tier looks at the clock only where fuel is taken. A part ends with
//! its block, so that whatever runs has been charged before it.
//!
//! Code that is not executed in a turn is charged all the same: fuel is an
//! upper bound of work, and both tiers charge at the same places.

use super::cost;
use super::ir::{Module, Op, OpKind};
use crate::bug::{self, Bug};
use wasmparser::Operator;

/// Units that one activation may use without a charge: a quarter of a slice. As
/// dependent loads that are in no cache these are 25 us.
const UNCHARGED_MOST: u64 = 1_024;

/// Units that one charge may take before the next, as far as operators cost
/// less than that. It is taken before a look at the clock and used up after
/// it, so that it is on top of what may be spent between two looks.
const STRETCH: u64 = 512;

/// What a charge costs by itself: a load, a subtraction, a store and a question.
const CHARGE: u64 = 4;

/// Fuel taken at a place.
#[derive(Clone, Copy)]
struct Part {
    /// The operation it is taken before, or the place kept for it.
    position: usize,
    /// What its operations cost.
    cost: u64,
    /// How many of them name an operand.
    named: u64,
    kind: PartKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PartKind {
    /// At the function's entry.
    Entry,
    /// At a loop's head, which has an operation for it.
    Loop,
    /// In the middle; whether in a loop.
    Middle { in_loop: bool },
}

impl Part {
    fn new(position: usize, kind: PartKind) -> Self {
        Self {
            position,
            cost: 0,
            named: 0,
            kind,
        }
    }

    /// What its operations take.
    fn work(&self) -> u64 {
        self.cost.max(self.named / cost::NAMED_FOR_UNIT)
    }

    /// What is taken. It is never nothing, so that an empty loop and a recursion
    /// of empty functions end.
    fn units(&self) -> u64 {
        CHARGE + self.work()
    }

    fn is_in_loop(&self) -> bool {
        matches!(
            self.kind,
            PartKind::Loop | PartKind::Middle { in_loop: true }
        )
    }
}

/// What a function costs, and whom it calls.
struct Walk {
    /// The function's entry first.
    parts: Vec<Part>,
    /// Whether it has a bulk operation.
    bulk: bool,
    indirect: bool,
    /// Callee, and whether the call can run more than once: it is in a loop, or
    /// can come back. One entry for each call.
    calls: Vec<(u32, bool)>,
}

/// Fills in loop charges and adds entry charges.
pub(super) fn charge(module: &mut Module<'_>) {
    let walks = walk_all(module);
    let mut charged = called_often(module, &walks);
    let uncharged = bounds(&walks, |callee| !charged[callee as usize]);
    let mut roots = module
        .exports
        .iter()
        .map(|(_, f)| *f as usize)
        .chain(module.start.map(|f| f as usize));
    let over = |f: usize| !charged[f] && uncharged[f].is_none_or(|cost| cost > UNCHARGED_MOST);
    if roots.any(over) {
        charged.fill(true);
    }
    for ((function, walk), charged) in module.functions.iter_mut().zip(&walks).zip(charged) {
        function.code = place(
            std::mem::take(&mut function.code),
            function.at,
            walk,
            charged,
        );
    }
}

/// Puts a function's charges in; those outside its loops only if it is charged.
fn place<'a>(code: Vec<Op<'a>>, entry: u32, walk: &Walk, charged: bool) -> Vec<Op<'a>> {
    let charge = |part: &Part, at| Op {
        kind: OpKind::Charge {
            cost: part.units().try_into().unwrap_or(u32::MAX),
        },
        at,
    };
    let mut placed = Vec::with_capacity(code.len() + walk.parts.len());
    let mut parts = walk.parts.iter().peekable();
    for (position, op) in code.into_iter().enumerate() {
        let at = op.at;
        let mut kept = Some(op);
        while let Some(part) = parts.next_if(|part| part.position == position) {
            match part.kind {
                PartKind::Entry if charged && !bug::is(Bug::EntryFree) => {
                    placed.push(charge(part, entry));
                }
                PartKind::Loop => {
                    let free = bug::is(Bug::LoopFree);
                    kept = Some(charge(part, at));
                    if let (true, Some(op)) = (free, &mut kept) {
                        op.kind = OpKind::Charge { cost: 0 };
                    }
                }
                PartKind::Middle { in_loop } if part.work() > 0 && (in_loop || charged) => {
                    placed.push(charge(part, at));
                }
                PartKind::Entry | PartKind::Middle { .. } => {}
            }
        }
        placed.extend(kept);
    }
    placed
}

/// The most fuel one call of `function` can need, in units, if that can be
/// said without running it: it has no loop, no recursion, no call through a
/// table and no bulk operation.
#[must_use]
pub fn static_bound(module: &Module<'_>, function: u32) -> Option<u64> {
    let walks = walk_all(module);
    let mut pending = vec![function];
    let mut seen = vec![false; walks.len()];
    while let Some(index) = pending.pop() {
        let walk = &walks[index as usize];
        if walk.has_loop() || walk.indirect || walk.bulk {
            return None;
        }
        if !std::mem::replace(&mut seen[index as usize], true) {
            pending.extend(walk.calls.iter().map(|(callee, _)| *callee));
        }
    }
    bounds(&walks, |_| true)[function as usize]
}

fn walk_all(module: &Module<'_>) -> Vec<Walk> {
    let functions = module.functions.iter();
    functions.map(|f| walk(&f.code, module)).collect()
}

impl Walk {
    fn has_loop(&self) -> bool {
        self.parts.iter().any(|part| part.kind == PartKind::Loop)
    }

    /// What is taken outside its loops.
    fn straight(&self) -> u64 {
        let once = self.parts.iter().filter(|part| !part.is_in_loop());
        once.map(Part::units).sum()
    }
}

/// Sums up one body. Linear in its length, however deeply it is nested.
fn walk(code: &[Op<'_>], module: &Module<'_>) -> Walk {
    let mut walk = Walk {
        parts: vec![Part::new(0, PartKind::Entry)],
        bulk: false,
        indirect: false,
        calls: Vec::new(),
    };
    // For the function and each open block: whether it is a loop, and the part
    // that what comes next belongs to.
    let mut open = vec![(false, 0)];
    let mut loops = 0;
    for (position, op) in code.iter().enumerate() {
        let part = open.last().map_or(0, |(_, part)| *part);
        walk.parts[part].cost += u64::from(cost::of(&op.kind, module));
        walk.parts[part].named += u64::from(cost::names(&op.kind));
        match &op.kind {
            OpKind::CallNumber { .. } | OpKind::Wasm(Operator::CallIndirect { .. }) => {
                walk.indirect = true;
            }
            OpKind::ChargeBulk => walk.bulk = true,
            OpKind::Wasm(Operator::Call { function_index }) => {
                let before = position.checked_sub(1).map(|before| &code[before].kind);
                let recursive = matches!(before, Some(OpKind::Push { .. }));
                walk.calls.push((*function_index, recursive || loops > 0));
            }
            OpKind::Wasm(Operator::Block { .. } | Operator::If { .. }) => open.push((false, part)),
            OpKind::Wasm(Operator::Loop { blockty }) => {
                loops += 1;
                open.push((true, walk.parts.len()));
                let mut part = Part::new(position + 1, PartKind::Loop);
                part.cost = u64::from(cost::turn(*blockty, module));
                walk.parts.push(part);
            }
            // The other arm is charged with what the `if` is in.
            OpKind::Wasm(Operator::Else) => {
                open.pop();
                let outer = open.last().map_or(0, |(_, part)| *part);
                open.push((false, outer));
            }
            OpKind::Wasm(Operator::End) => {
                let was_loop = open.pop().is_some_and(|(is_loop, _)| is_loop);
                loops -= usize::from(was_loop);
            }
            OpKind::Wasm(_) | OpKind::Host(_) => {
                let last = open.last_mut();
                let next = code.get(position + 1).map(|op| &op.kind);
                if let (Some((_, part)), Some(OpKind::Wasm(_) | OpKind::Host(_))) = (last, next)
                    && walk.parts[*part].work() > STRETCH
                {
                    *part = walk.parts.len();
                    let kind = PartKind::Middle { in_loop: loops > 0 };
                    walk.parts.push(Part::new(position + 1, kind));
                }
            }
            _ => {}
        }
    }
    walk
}

/// Which functions can run more often than they are written down.
fn called_often(module: &Module<'_>, walks: &[Walk]) -> Vec<bool> {
    let mut often = vec![false; walks.len()];
    if walks.iter().any(|walk| walk.indirect) {
        for function in &module.referenced {
            often[*function as usize] = true;
        }
    }
    let mut called = vec![false; walks.len()];
    for (callee, again) in walks.iter().flat_map(|walk| &walk.calls) {
        let callee = *callee as usize;
        often[callee] |= *again || called[callee];
        called[callee] = true;
    }
    // Whom such a function calls runs as often as itself.
    let mut pending: Vec<usize> = (0..walks.len()).filter(|i| often[*i]).collect();
    while let Some(index) = pending.pop() {
        for (callee, _) in &walks[index].calls {
            if !std::mem::replace(&mut often[*callee as usize], true) {
                pending.push(*callee as usize);
            }
        }
    }
    often
}

/// The straight-line cost of each function with its callees that `counts`
/// lets in; `None` if they call each other in a cycle.
fn bounds(walks: &[Walk], counts: impl Fn(u32) -> bool) -> Vec<Option<u64>> {
    let mut callers = vec![Vec::new(); walks.len()];
    let mut left = vec![0; walks.len()];
    for (index, walk) in walks.iter().enumerate() {
        let counted = walk.calls.iter().filter(|(callee, _)| counts(*callee));
        for (callee, _) in counted {
            callers[*callee as usize].push(index);
            left[index] += 1;
        }
    }
    let mut sums: Vec<u64> = walks.iter().map(Walk::straight).collect();
    let mut known = vec![None; walks.len()];
    let mut pending: Vec<usize> = (0..walks.len()).filter(|i| left[*i] == 0).collect();
    while let Some(index) = pending.pop() {
        known[index] = Some(sums[index]);
        for &caller in &callers[index] {
            sums[caller] = sums[caller].saturating_add(sums[index]);
            left[caller] -= 1;
            if left[caller] == 0 {
                pending.push(caller);
            }
        }
    }
    known
}
