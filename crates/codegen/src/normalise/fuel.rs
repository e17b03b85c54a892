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
//! Code that is not executed in a turn is charged all the same: fuel is an
//! upper bound of work, and both tiers charge at the same places.

use super::cost;
use super::ir::{Module, Op, OpKind};
use crate::bug::{self, Bug};
use wasmparser::Operator;

/// Units that one activation may use without a charge.
const UNCHARGED_MOST: u64 = 4_096;

/// What a function costs outside its loops, and whom it calls.
#[derive(Default)]
struct Walk {
    straight: u64,
    /// Position of each loop's charge, and what it takes.
    loops: Vec<(usize, u32)>,
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
        for &(position, cost) in &walk.loops {
            let cost = if bug::is(Bug::LoopFree) { 0 } else { cost };
            function.code[position].kind = OpKind::Charge { cost };
        }
        if charged && !bug::is(Bug::EntryFree) {
            let kind = OpKind::Charge {
                cost: as_cost(walk.straight.max(1)),
            };
            let at = function.at;
            function.code.insert(0, Op { kind, at });
        }
    }
}

/// The most fuel one call of `function` can need, in units, if that can be
/// said without running it: it has no loop, no recursion and no call through a
/// table. Bulk operations come on top, by their lengths.
#[must_use]
pub fn static_bound(module: &Module<'_>, function: u32) -> Option<u64> {
    let walks = walk_all(module);
    let mut pending = vec![function];
    let mut seen = vec![false; walks.len()];
    while let Some(index) = pending.pop() {
        let walk = &walks[index as usize];
        if !walk.loops.is_empty() || walk.indirect {
            return None;
        }
        if !std::mem::replace(&mut seen[index as usize], true) {
            pending.extend(walk.calls.iter().map(|(callee, _)| *callee));
        }
    }
    bounds(&walks, |_| true)[function as usize]
}

fn as_cost(cost: u64) -> u32 {
    cost.try_into().unwrap_or(u32::MAX)
}

fn walk_all(module: &Module<'_>) -> Vec<Walk> {
    module.functions.iter().map(|f| walk(&f.code)).collect()
}

/// Sums up one body. Linear in its length, however deeply it is nested.
fn walk(code: &[Op<'_>]) -> Walk {
    let mut walk = Walk::default();
    // Whether each open block is a loop; for each open loop, the position of
    // its charge and the cost so far.
    let mut blocks = Vec::new();
    let mut loops: Vec<(usize, u64)> = Vec::new();
    for (position, op) in code.iter().enumerate() {
        let sum = loops.last_mut().map_or(&mut walk.straight, |(_, sum)| sum);
        *sum = sum.saturating_add(u64::from(cost::of(&op.kind)));
        let operator = match &op.kind {
            OpKind::Wasm(operator) => operator,
            OpKind::CallNumber { .. } => {
                walk.indirect = true;
                continue;
            }
            _ => continue,
        };
        match operator {
            Operator::Block { .. } | Operator::If { .. } => blocks.push(false),
            Operator::Loop { .. } => {
                blocks.push(true);
                loops.push((position + 1, 0));
            }
            Operator::End => {
                if blocks.pop() == Some(true)
                    && let Some((charge, sum)) = loops.pop()
                {
                    // A turn is never free, or an empty loop would never end.
                    walk.loops.push((charge, as_cost(sum.max(1))));
                }
            }
            Operator::Call { function_index } => {
                let before = position.checked_sub(1).map(|before| &code[before].kind);
                let recursive = matches!(before, Some(OpKind::Push { .. }));
                let again = recursive || !loops.is_empty();
                walk.calls.push((*function_index, again));
            }
            Operator::CallIndirect { .. } => walk.indirect = true,
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
    let mut sums: Vec<u64> = walks.iter().map(|walk| walk.straight).collect();
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
