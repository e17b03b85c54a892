//! The program as blocks and the ways between them.

use super::violation::{Fail, Rule, Violation};
use crate::bpf::form::{Form, form};
use crate::bpf::{Image, Insn, MapUse};

/// Instructions that the kernel takes (`BPF_COMPLEXITY_LIMIT_INSNS`).
const MOST_INSNS: usize = 1_000_000;

/// Instructions without a jump or a target between them.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// First instruction.
    pub(super) start: usize,
    /// Behind the last.
    pub(super) end: usize,
    /// The block that follows, if the last instruction can fall through.
    pub(super) next: Option<usize>,
    /// The block that the last instruction can jump to.
    pub(super) taken: Option<usize>,
    /// Ways that lead here.
    pub(super) ways_in: usize,
}

impl Block {
    pub(super) fn ways_out(&self) -> impl Iterator<Item = usize> + use<> {
        self.next.into_iter().chain(self.taken)
    }
}

/// The decoded program.
#[derive(Debug)]
pub(super) struct Graph {
    /// Each instruction; the second half of an `ld_imm64` has none.
    pub(super) code: Vec<Option<(Insn, Form)>>,
    pub(super) blocks: Vec<Block>,
}

impl Graph {
    /// Takes time and memory in proportion to the program.
    pub(super) fn new(image: &Image) -> Result<Self, Violation> {
        let at = |insn, what: &str| Violation::at(insn, Fail::new(Rule::Instruction, what), image);
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
                let target = target.ok_or_else(|| at(index, "the jump leads nowhere"))?;
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
            let last = (start..end)
                .rfind(|index| code[*index].is_some())
                .unwrap_or(start);
            let ends = matches!(code[last], Some((_, Form::Jump { .. } | Form::Exit)));
            if !ends && end == code.len() {
                return Err(at(last, "the program runs off its end"));
            }
            blocks.push(Block {
                start,
                end,
                next: (!ends).then_some(number + 1),
                taken: targets[last].map(block_at),
                ways_in: usize::from(number == 0),
            });
        }
        for number in 0..blocks.len() {
            for to in blocks[number].ways_out() {
                blocks[to].ways_in += 1;
            }
        }
        Ok(Self { code, blocks })
    }

    /// Each block's position in an order that is topological but for cycles;
    /// `None` for those that nothing leads to.
    pub(super) fn order(&self) -> Vec<Option<usize>> {
        let mut seen = vec![false; self.blocks.len()];
        let mut finished = Vec::with_capacity(self.blocks.len());
        let mut chain = vec![(0, self.blocks[0].ways_out())];
        seen[0] = true;
        while let Some((block, ways)) = chain.last_mut() {
            match ways.next() {
                Some(to) if !seen[to] => {
                    seen[to] = true;
                    chain.push((to, self.blocks[to].ways_out()));
                }
                Some(_) => {}
                None => {
                    finished.push(*block);
                    chain.pop();
                }
            }
        }
        let mut position = vec![None; self.blocks.len()];
        for (place, block) in finished.into_iter().rev().enumerate() {
            position[block] = Some(place);
        }
        position
    }
}

fn decode(image: &Image) -> Result<Vec<Option<(Insn, Form)>>, Violation> {
    let fail = |insn, what: &str| {
        Err(Violation::at(
            insn,
            Fail::new(Rule::Instruction, what),
            image,
        ))
    };
    let count = image.insns.len();
    if count == 0 || count > MOST_INSNS {
        return fail(0, "the program is empty or too long");
    }
    let mut code = Vec::with_capacity(count);
    while let Some(raw) = image.insns.get(code.len()) {
        let index = code.len();
        let insn = Insn::decode(*raw);
        let Some(form) = form(insn) else {
            return fail(index, "the instruction is not known");
        };
        if insn.dst > 10 || insn.src > 10 {
            return fail(index, "there is no such register");
        }
        code.push(Some((insn, form)));
        if matches!(form, Form::Imm64 { .. }) {
            match image.insns.get(index + 1) {
                Some(raw) if *raw as u32 == 0 => code.push(None),
                _ => return fail(index, "the second half of the number is missing"),
            }
        }
    }
    Ok(code)
}

/// The use of a map by the instruction at `insn`.
pub(super) fn map_use(image: &Image, insn: usize) -> Option<MapUse> {
    let at = image.maps.partition_point(|used| used.insn < insn);
    image.maps.get(at).copied().filter(|used| used.insn == insn)
}
