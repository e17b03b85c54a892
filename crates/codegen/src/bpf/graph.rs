//! A program as basic blocks and the ways between them, for whoever follows
//! programs instead of running them.

use super::form::{Form, form};
use super::{Image, Insn};
use std::collections::BTreeSet;

/// Instructions that the kernel takes (`BPF_COMPLEXITY_LIMIT_INSNS`).
const MOST_INSNS: usize = 1_000_000;

/// Each instruction; the second half of an `ld_imm64` has none.
type Code = Vec<Option<(Insn, Form)>>;

/// Instructions without a jump or a target between them.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// First instruction.
    pub(crate) start: usize,
    /// Behind the last.
    pub(crate) end: usize,
    /// The block that follows, if the last instruction can fall through.
    pub(crate) next: Option<usize>,
    /// The block that the last instruction can jump to.
    pub(crate) taken: Option<usize>,
    /// Ways that lead here.
    pub(crate) ways_in: usize,
}

impl Block {
    fn ways_out(&self) -> impl Iterator<Item = usize> + use<> {
        self.next.into_iter().chain(self.taken)
    }
}

/// The decoded program.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) code: Code,
    /// Those that something leads to, in topological order but for cycles.
    pub(crate) blocks: Vec<Block>,
}

impl Graph {
    /// Takes time and memory in proportion to the program. On an instruction
    /// that does not exist, or leads nowhere, says which and why.
    pub(crate) fn new(image: &Image) -> Result<Self, (usize, &'static str)> {
        let code = decode(image)?;
        let mut starts = vec![false; code.len()];
        let mut targets = vec![None; code.len()];
        starts[0] = true;
        for (index, entry) in code.iter().enumerate() {
            let Some((insn, form)) = entry else { continue };
            let distance = match form {
                Form::Jump { distance, .. } => Some(i64::from(*distance)),
                Form::Branch { .. } | Form::MayGoto => Some(i64::from(insn.off)),
                _ => None,
            };
            if let Some(distance) = distance {
                let target = usize::try_from(index as i64 + 1 + distance).ok();
                let target = target.filter(|to| matches!(code.get(*to), Some(Some(_))));
                let target = target.ok_or((index, "the jump leads nowhere"))?;
                starts[target] = true;
                targets[index] = Some(target);
            }
            if (distance.is_some() || *form == Form::Exit) && index + 1 < code.len() {
                starts[index + 1] = true;
            }
        }
        let first: Vec<usize> = (0..code.len()).filter(|index| starts[*index]).collect();
        let block_at = |insn: usize| first.partition_point(|start| *start <= insn) - 1;
        let mut blocks = Vec::with_capacity(first.len());
        for (number, &start) in first.iter().enumerate() {
            let end = first.get(number + 1).copied().unwrap_or(code.len());
            let last = (start..end).rfind(|index| code[*index].is_some());
            let last = last.unwrap_or(start);
            let ends = matches!(code[last], Some((_, Form::Jump { .. } | Form::Exit)));
            if !ends && end == code.len() {
                return Err((last, "the program runs off its end"));
            }
            blocks.push(Block {
                start,
                end,
                next: (!ends).then_some(number + 1),
                taken: targets[last].map(block_at),
                ways_in: usize::from(number == 0),
            });
        }
        Ok(Self { code, blocks }.ordered())
    }

    /// Only the blocks that something leads to, in an order that is topological
    /// but for cycles, each with its ways in counted.
    fn ordered(self) -> Self {
        let (mut order, _) = self.visit(0..1, |_| true);
        order.reverse();
        let mut place = vec![0; self.blocks.len()];
        for (at, block) in order.iter().enumerate() {
            place[*block] = at;
        }
        let moved = |block: &usize| Block {
            next: self.blocks[*block].next.map(|to| place[to]),
            taken: self.blocks[*block].taken.map(|to| place[to]),
            ..self.blocks[*block].clone()
        };
        let mut blocks: Vec<Block> = order.iter().map(moved).collect();
        for number in 0..blocks.len() {
            for to in blocks[number].ways_out() {
                blocks[to].ways_in += 1;
            }
        }
        let code = self.code;
        Self { code, blocks }
    }

    /// A block on a cycle of blocks that are all `inside`, if there is one.
    pub(crate) fn cycle(&self, inside: impl Fn(usize) -> bool) -> Option<usize> {
        self.visit(0..self.blocks.len(), inside).1
    }

    /// Follows every way from `entry` until nothing changes. `step` makes of what
    /// holds before a block what holds where it jumps to, and behind it; `join`
    /// adds another way into a block that had so many visits, and says whether
    /// anything is new. Ends if that is so only a limited number of times.
    pub(crate) fn follow<S: Clone + PartialEq, E>(
        &self,
        entry: S,
        mut step: impl FnMut(usize, S) -> Result<[Option<S>; 2], E>,
        join: impl Fn(&mut S, &S, usize, u32) -> bool,
    ) -> Result<(), E> {
        let mut visits = vec![0; self.blocks.len()];
        let mut states = vec![None; self.blocks.len()];
        states[0] = Some(entry);
        // First things first, so that most ways into a block are known before it.
        let mut pending = BTreeSet::from([0]);
        while let Some(number) = pending.pop_first() {
            let block = &self.blocks[number];
            let Some(state) = states[number].clone() else {
                continue;
            };
            visits[number] += 1;
            let [taken, next] = step(number, state)?;
            for (to, new) in [(block.next, next), (block.taken, taken)] {
                let (Some(to), Some(new)) = (to, new) else {
                    continue;
                };
                let changed = match &mut states[to] {
                    // With one way in, what holds there is what holds at its start.
                    Some(state) if self.blocks[to].ways_in > 1 => join(state, &new, to, visits[to]),
                    known => known.replace(new.clone()) != Some(new),
                };
                if changed {
                    pending.insert(to);
                }
            }
        }
        Ok(())
    }

    /// Depth first, from the roots: blocks as they are finished, and one that a
    /// way leads back to.
    fn visit(
        &self,
        roots: impl Iterator<Item = usize>,
        inside: impl Fn(usize) -> bool,
    ) -> (Vec<usize>, Option<usize>) {
        let mut seen = vec![false; self.blocks.len()];
        let mut open = vec![false; self.blocks.len()];
        let (mut finished, mut back) = (Vec::new(), None);
        let mut chain = Vec::new();
        for root in roots.filter(|root| inside(*root)) {
            if seen[root] {
                continue;
            }
            (seen[root], open[root]) = (true, true);
            chain.push((root, self.blocks[root].ways_out()));
            while let Some((block, ways)) = chain.last_mut() {
                match ways.find(|to| inside(*to)) {
                    Some(to) if !seen[to] => {
                        (seen[to], open[to]) = (true, true);
                        chain.push((to, self.blocks[to].ways_out()));
                    }
                    Some(to) if open[to] => back = Some(to),
                    Some(_) => {}
                    None => {
                        open[*block] = false;
                        finished.push(*block);
                        chain.pop();
                    }
                }
            }
        }
        (finished, back)
    }
}

fn decode(image: &Image) -> Result<Code, (usize, &'static str)> {
    let count = image.insns.len();
    if count == 0 || count > MOST_INSNS {
        return Err((0, "the program is empty or too long"));
    }
    let mut code = Vec::with_capacity(count);
    while let Some(raw) = image.insns.get(code.len()) {
        let index = code.len();
        let insn = Insn::decode(*raw);
        let form = form(insn).ok_or((index, "the instruction is not known"))?;
        if insn.dst > 10 || insn.src > 10 {
            return Err((index, "there is no such register"));
        }
        code.push(Some((insn, form)));
        if matches!(form, Form::Imm64 { .. }) {
            match image.insns.get(index + 1) {
                Some(raw) if *raw as u32 == 0 => code.push(None),
                _ => return Err((index, "the second half of the number is missing")),
            }
        }
    }
    Ok(code)
}
