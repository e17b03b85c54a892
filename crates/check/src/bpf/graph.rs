//! A program as basic blocks and the ways between them, for whoever follows
//! programs instead of running them.
//!
//! A program may have a million instructions and come from a stranger's module,
//! so a block takes 28 bytes here, and no more states are kept than are needed
//! ([`Graph::follow`]).

use super::form::{Form, form};
use super::{Image, Insn};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Instructions that the kernel takes (`BPF_COMPLEXITY_LIMIT_INSNS`).
const MOST_INSNS: usize = 1_000_000;

/// Most instructions of a block that is followed once for each way that leads
/// there, instead of once for all of them. The end of a trap is no longer.
const SHORT: u32 = 16;

/// After so many visits of a block where a cycle begins, what still grows there
/// is widened.
const WIDEN_AFTER: u32 = 3;

/// Where in the program something is wrong, and what.
type Wrong = (usize, &'static str);

/// Instructions without a jump or a target between them.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// First instruction.
    pub(crate) start: u32,
    /// Behind the last.
    pub(crate) end: u32,
    /// The block that follows, if the last instruction can fall through.
    next: Option<u32>,
    /// The block that the last instruction can jump to.
    taken: Option<u32>,
    begin: Begin,
}

/// How a block is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// By one way; with so many blocks behind it that are reached through it, by
    /// one way each.
    Single(u32),
    /// By several, and is [`SHORT`] with one way out at most, to where others lead, too.
    Short,
    /// By several, from blocks before it.
    Join,
    /// Also from itself or from a block behind it. Every cycle has one.
    Head,
}

impl Block {
    /// The block that is jumped to, and the one behind.
    const fn ways(&self) -> [Option<u32>; 2] {
        [self.taken, self.next]
    }

    fn ways_out(&self) -> impl Iterator<Item = usize> + use<> {
        self.ways().into_iter().flatten().map(|to| to as usize)
    }
}

/// A program's blocks.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Those that something leads to, in topological order but for cycles; where
    /// a loop ends is behind the loop.
    pub(crate) blocks: Vec<Block>,
    /// Where the program begins.
    pub(crate) entry: usize,
    /// Where each subprogram begins that is called: its first instruction, and the block.
    pub(crate) subprograms: Vec<(u32, usize)>,
}

impl Graph {
    /// Takes time and memory in proportion to the program. On an instruction
    /// that does not exist, or leads nowhere, says which and why.
    pub(crate) fn new(image: &Image) -> Result<Self, Wrong> {
        let count = image.insns.len();
        if count == 0 || count > MOST_INSNS {
            return Err((0, "the program is empty or too long"));
        }
        let mut starts = vec![false; count + 1];
        starts[0] = true;
        let mut at = 0;
        while at < count {
            let (form, behind, target) = known(image, at)?;
            if let Some(target) = target {
                starts[target] = true;
            }
            starts[behind] |= target.is_some() || form == Form::Exit;
            at = behind;
        }
        let subprograms = image.subprograms();
        for own in &subprograms {
            starts[*own as usize] = true;
        }
        starts[count] = true;
        let first: Vec<u32> = (0..=count as u32)
            .filter(|at| starts[*at as usize])
            .collect();
        let block_at = |insn: usize| first.partition_point(|start| *start as usize <= insn) - 1;
        let mut blocks = Vec::with_capacity(first.len() - 1);
        let mut at = 0;
        while at < count {
            let (form, behind, target) = known(image, at)?;
            if starts[behind] {
                let ends = matches!(form, Form::Jump { .. } | Form::Exit);
                if !ends && behind == count {
                    return Err((at, "the program runs off its end"));
                }
                let number = blocks.len();
                blocks.push(Block {
                    start: first[number],
                    end: behind as u32,
                    next: (!ends).then_some(number as u32 + 1),
                    taken: target.map(|to| block_at(to) as u32),
                    begin: Begin::Join,
                });
            }
            at = behind;
        }
        let subprograms = subprograms
            .iter()
            .map(|own| (*own, block_at(*own as usize)));
        let graph = Self {
            blocks,
            entry: 0,
            subprograms: subprograms.collect(),
        };
        Ok(graph.ordered())
    }

    /// Only the blocks that something leads to, in their order.
    fn ordered(self) -> Self {
        // What is visited last comes first.
        let roots = self.subprograms.iter().map(|(_, block)| *block);
        let (mut order, _) = self.visit(roots.chain([self.entry]), |_| true);
        order.reverse();
        let mut place = vec![0; self.blocks.len()];
        for (at, block) in (0..).zip(&order) {
            place[*block as usize] = at;
        }
        let moved = |block: &u32| {
            let block = &self.blocks[*block as usize];
            Block {
                next: block.next.map(|to| place[to as usize]),
                taken: block.taken.map(|to| place[to as usize]),
                ..block.clone()
            }
        };
        let mut blocks: Vec<Block> = order.iter().map(moved).collect();
        let entry = place[self.entry] as usize;
        let subprograms = self.subprograms.iter();
        let subprograms = subprograms.map(|(insn, block)| (*insn, place[*block] as usize));
        let subprograms: Vec<(u32, usize)> = subprograms.collect();
        // Ways in, one of which is the program's begin or a call; ways in from behind.
        let mut ways = vec![(0_u32, false); blocks.len()];
        for begin in subprograms.iter().map(|(_, block)| *block).chain([entry]) {
            ways[begin].0 += 1;
        }
        for (number, block) in blocks.iter().enumerate() {
            for to in block.ways_out() {
                ways[to].0 += 1;
                ways[to].1 |= to <= number;
            }
        }
        let counts: Vec<u32> = ways.iter().map(|(count, _)| *count).collect();
        for (number, (count, from_behind)) in ways.into_iter().enumerate().rev() {
            let block = &blocks[number];
            let behind = block.ways_out().map(|to| match blocks[to].begin {
                Begin::Single(behind) if to > number => behind + 1,
                _ => 0,
            });
            // What is behind one that alone leads there would be followed as often.
            let alone = block.ways_out().any(|to| counts[to] == 1);
            let short = block.end - block.start <= SHORT && block.ways_out().count() < 2 && !alone;
            blocks[number].begin = match (count, from_behind) {
                (_, true) => Begin::Head,
                (1, _) => Begin::Single(behind.sum()),
                _ if short => Begin::Short,
                _ => Begin::Join,
            };
        }
        Self {
            blocks,
            entry,
            subprograms,
        }
    }

    /// A block on a cycle of blocks that are all `inside`, if there is one.
    pub(crate) fn cycle(&self, inside: impl Fn(usize) -> bool) -> Option<usize> {
        self.visit(0..self.blocks.len(), inside).1
    }

    /// Follows every way from the block `first`, where `entry` holds, until nothing changes. `step` makes of what
    /// holds before a block what holds where it jumps to, and behind it; `join`
    /// adds another way into a block, and says whether anything is new; told to
    /// widen, it must come to an end soon. Says how many instructions were followed; `None`
    /// if that would be more than `most`.
    ///
    /// A state is kept for as long as it is needed: for good only where a cycle
    /// begins, else until its block is followed, which is at once if no other way
    /// leads there. So a block can be followed several times with less known of
    /// one time than of another: what was true each time is true.
    pub(crate) fn follow<S: Clone, E>(
        &self,
        (first, entry): (usize, S),
        mut step: impl FnMut(usize, S) -> Result<[Option<S>; 2], E>,
        join: impl Fn(&mut S, &S, usize, bool) -> bool,
        most: u32,
    ) -> Result<Option<u32>, E> {
        let mut steps = 0;
        let mut heads: BTreeMap<usize, (Box<S>, u32)> = BTreeMap::new();
        // First things first, so that most ways into a block are known before it.
        let mut waiting = BTreeMap::from([(first, Box::new(entry))]);
        let mut at_once = Vec::new();
        while let Some((number, mut state)) = at_once.pop().or_else(|| waiting.pop_first()) {
            let begin = self.blocks[number].begin;
            if begin == Begin::Head {
                match heads.entry(number) {
                    Entry::Vacant(entry) => drop(entry.insert((state.clone(), 1))),
                    Entry::Occupied(mut entry) => {
                        let (known, visits) = entry.get_mut();
                        if !join(known, &state, number, *visits > WIDEN_AFTER) {
                            continue;
                        }
                        *visits += 1;
                        state.clone_from(known);
                    }
                }
            }
            let block = &self.blocks[number];
            steps += block.end - block.start;
            if steps > most {
                return Ok(None);
            }
            let reached = step(number, *state)?;
            let ways = block.ways().into_iter().zip(reached);
            let ways = ways.filter_map(|(to, state)| Some((to? as usize, Box::new(state?))));
            let waited = at_once.len();
            for (to, state) in ways {
                match (self.blocks[to].begin, begin) {
                    // Not one after the other: that could be long.
                    (Begin::Single(_), _) => at_once.push((to, state)),
                    (Begin::Short, Begin::Single(_) | Begin::Join | Begin::Head) => {
                        at_once.push((to, state));
                    }
                    _ => match waiting.entry(to) {
                        Entry::Vacant(entry) => drop(entry.insert(state)),
                        Entry::Occupied(mut entry) => _ = join(entry.get_mut(), &state, to, false),
                    },
                }
            }
            // The way with less behind it first: what waits here meanwhile has
            // twice as much behind it each time, so that no more than 20 wait.
            let behind = |(to, _): &(usize, _)| match self.blocks[*to].begin {
                Begin::Single(behind) => behind,
                _ => 0,
            };
            at_once[waited..].sort_by_key(|way| std::cmp::Reverse(behind(way)));
        }
        Ok(Some(steps))
    }

    /// Depth first, from the roots: blocks as they are finished, and one that a
    /// way leads back to. Farther ways first.
    fn visit(
        &self,
        roots: impl Iterator<Item = usize>,
        inside: impl Fn(usize) -> bool,
    ) -> (Vec<u32>, Option<usize>) {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            Never,
            Open,
            Finished,
        }
        let ways = |block: usize| {
            let mut ways = self.blocks[block].ways();
            ways.sort_unstable();
            ways
        };
        let mut seen = vec![Seen::Never; self.blocks.len()];
        let (mut finished, mut back) = (Vec::new(), None);
        // Each with how many of its ways are left.
        let mut chain: Vec<(u32, u8)> = Vec::new();
        for root in roots.filter(|root| inside(*root)) {
            if seen[root] != Seen::Never {
                continue;
            }
            seen[root] = Seen::Open;
            chain.push((root as u32, 2));
            while let Some((block, left)) = chain.last_mut() {
                if *left == 0 {
                    seen[*block as usize] = Seen::Finished;
                    finished.push(*block);
                    chain.pop();
                    continue;
                }
                *left -= 1;
                let Some(to) = ways(*block as usize)[usize::from(*left)] else {
                    continue;
                };
                let to = to as usize;
                match seen[to] {
                    _ if !inside(to) => {}
                    Seen::Never => {
                        seen[to] = Seen::Open;
                        chain.push((to as u32, 2));
                    }
                    Seen::Open => back = Some(to),
                    Seen::Finished => {}
                }
            }
        }
        (finished, back)
    }
}

/// An instruction, what is behind it, and where it jumps to if it does.
fn known(image: &Image, at: usize) -> Result<(Form, usize, Option<usize>), Wrong> {
    let insn = Insn::decode(image.insns[at]);
    let form = form(insn).ok_or((at, "the instruction is not known"))?;
    if insn.dst > 10 || insn.src > 10 {
        return Err((at, "there is no such register"));
    }
    let second_half = |at: usize| image.insns.get(at).is_some_and(|raw| *raw as u32 == 0);
    if matches!(form, Form::Imm64 { .. }) {
        if !second_half(at + 1) {
            return Err((at, "the second half of the number is missing"));
        }
        return Ok((form, at + 2, None));
    }
    let distance = match form {
        Form::Jump { distance, .. } | Form::CallOwn { distance } => i64::from(distance),
        Form::Branch { .. } | Form::MayGoto => i64::from(insn.off),
        _ => return Ok((form, at + 1, None)),
    };
    let target = usize::try_from(at as i64 + 1 + distance).ok();
    let target = target.filter(|to| *to < image.insns.len() && !second_half(*to));
    let target = target.ok_or((at, "the jump leads nowhere"))?;
    // A call goes on behind it.
    let jumps = !matches!(form, Form::CallOwn { .. });
    Ok((form, at + 1, jumps.then_some(target)))
}
