//! The assembler: emit instructions, jump to labels, get an [`Image`].
//!
//! Jumps are resolved at [`Assembler::finish`]. A conditional jump whose target
//! is out of the reach of 16 bits becomes the inverted jump over a `gotol`
//! (cpu v4, Linux 6.6). Code that cannot be reached is left out, because the
//! verifier refuses it.

use super::form::CALL_OWN;
use super::insn::{Atomic, Insn, Reg, Size, op};
use super::{Field, Hook, Image, Line, MapRef, MapUse};
use std::collections::BTreeSet;

const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU32: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_JMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;
const MODE_MEM: u8 = 0x60;
const MODE_MEMSX: u8 = 0x80;
const MODE_ATOMIC: u8 = 0xc0;
const SRC_REG: u8 = 0x08;
const LD_IMM64: u8 = 0x18;

/// A place in the program that jumps can name before it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u32);

#[derive(Clone, Copy, Debug)]
struct Item {
    insn: Insn,
    /// Where a jump goes.
    target: Option<Label>,
    /// The map an `ld_imm64` names.
    map: Option<(MapRef, Option<u32>)>,
    /// Index into the line table plus 1; 0 for trusted code.
    line: u32,
}

impl Item {
    /// Whether it calls a subprogram.
    fn is_call(&self) -> bool {
        self.target.is_some() && self.insn.opcode == CLASS_JMP | op::CALL
    }
}

/// Collects instructions; see the module's documentation.
#[derive(Debug, Default)]
pub struct Assembler {
    hook: Hook,
    items: Vec<Item>,
    /// Position of each label, once bound.
    labels: Vec<Option<usize>>,
    lines: Vec<(String, u32)>,
    current_line: u32,
    patched: Patched,
}

/// Instructions that the kernel replaces or removes one by one when it has verified a
/// program, and each time moves all that comes behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patched {
    /// In whose place it puts several: `may_goto`, and divisions by a register.
    pub grown: usize,
    /// Conditional jumps. One of which it knows that it is always or never taken goes, and
    /// what only the other way leads to.
    pub jumps: usize,
}

/// How far a conditional jump goes. Its offset has 16 bits, but the kernel puts
/// up to eight instructions in the place of one of ours (divisions, `may_goto`,
/// casts) and refuses the program if the offset is too small then ("cannot be
/// patched due to 16-bit range", Linux 6.18).
const FARTHEST: i64 = i16::MAX as i64 / 8;

impl Assembler {
    /// An empty program for XDP.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty program for this hook.
    #[must_use]
    pub fn at(hook: Hook) -> Self {
        Self {
            hook,
            ..Self::default()
        }
    }

    /// Where the program runs.
    #[must_use]
    pub const fn hook(&self) -> Hook {
        self.hook
    }

    /// `into` = the field of the context at `context`.
    pub fn field(&mut self, into: Reg, context: Reg, field: Field) {
        self.load(Size::W, into, context, self.hook.offset(field));
    }

    /// A new label, bound later with [`Assembler::bind`].
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() as u32 - 1)
    }

    /// Puts `label` here.
    ///
    /// # Panics
    ///
    /// If the label is bound already.
    pub fn bind(&mut self, label: Label) {
        let place = &mut self.labels[label.0 as usize];
        assert!(place.is_none(), "a label is bound once");
        *place = Some(self.items.len());
    }

    /// A label bound here.
    pub fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// Instructions emitted so far, unreachable ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// What the kernel may have to patch in them.
    #[must_use]
    pub const fn patched(&self) -> Patched {
        self.patched
    }

    /// Whether nothing has been emitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The source line that what follows comes from; `None` for our own code.
    pub fn line(&mut self, line: Option<(&str, u32)>) {
        self.current_line = match line {
            None => 0,
            Some((file, number)) => {
                let known = self
                    .lines
                    .iter()
                    .rposition(|(f, n)| f == file && *n == number);
                let index = known.unwrap_or_else(|| {
                    self.lines.push((file.to_owned(), number));
                    self.lines.len() - 1
                });
                index as u32 + 1
            }
        };
    }

    /// Any instruction, verbatim.
    pub fn raw(&mut self, insn: Insn) {
        self.push(insn, None, None);
    }

    fn push(&mut self, insn: Insn, target: Option<Label>, map: Option<(MapRef, Option<u32>)>) {
        let line = self.current_line;
        let (class, operation) = (insn.opcode & 0x07, insn.opcode & 0xf0);
        let by_register = insn.opcode & SRC_REG != 0;
        match (class, operation) {
            (CLASS_JMP, op::JCOND) => self.patched.grown += 1,
            (CLASS_ALU32 | CLASS_ALU64, op::DIV | op::MOD) if by_register => {
                self.patched.grown += 1;
            }
            (CLASS_JMP, op::JA | op::CALL | op::EXIT) => {}
            (CLASS_JMP | CLASS_JMP32, _) => self.patched.jumps += 1,
            _ => {}
        }
        self.items.push(Item {
            insn,
            target,
            map,
            line,
        });
    }

    fn plain(&mut self, opcode: u8, dst: Reg, src: u8, off: i16, imm: i32) {
        self.raw(Insn {
            opcode,
            dst: dst as u8,
            src,
            off,
            imm,
        });
    }

    /// `dst = dst OP src`, 64 bits (`op::MOV` copies).
    pub fn alu(&mut self, operation: u8, dst: Reg, src: Reg) {
        self.plain(CLASS_ALU64 | SRC_REG | operation, dst, src as u8, 0, 0);
    }

    /// `dst = dst OP imm`, 64 bits, the immediate sign-extended.
    pub fn alu_imm(&mut self, operation: u8, dst: Reg, imm: i32) {
        self.plain(CLASS_ALU64 | operation, dst, 0, 0, imm);
    }

    /// `dst = dst OP src`, 32 bits, zero-extended into the register.
    pub fn alu32(&mut self, operation: u8, dst: Reg, src: Reg) {
        self.plain(CLASS_ALU32 | SRC_REG | operation, dst, src as u8, 0, 0);
    }

    /// `dst = dst OP imm`, 32 bits, zero-extended into the register.
    pub fn alu32_imm(&mut self, operation: u8, dst: Reg, imm: i32) {
        self.plain(CLASS_ALU32 | operation, dst, 0, 0, imm);
    }

    /// Signed division or remainder (`op::DIV`, `op::MOD`), cpu v4.
    pub fn signed_div(&mut self, operation: u8, wide: bool, dst: Reg, src: Reg) {
        let class = if wide { CLASS_ALU64 } else { CLASS_ALU32 };
        self.plain(class | SRC_REG | operation, dst, src as u8, 1, 0);
    }

    /// `dst = src`, 64 bits.
    pub fn mov(&mut self, dst: Reg, src: Reg) {
        self.alu(op::MOV, dst, src);
    }

    /// `dst = imm`, sign-extended.
    pub fn mov_imm(&mut self, dst: Reg, imm: i32) {
        self.alu_imm(op::MOV, dst, imm);
    }

    /// `dst = (i8|i16|i32) src`, sign-extended to 64 or 32 bits (`movsx`).
    pub fn movsx(&mut self, from: Size, wide: bool, dst: Reg, src: Reg) {
        let class = if wide { CLASS_ALU64 } else { CLASS_ALU32 };
        let bits = from.bytes() as i16 * 8;
        self.plain(class | SRC_REG | op::MOV, dst, src as u8, bits, 0);
    }

    /// `dst = imm`, all 64 bits; one instruction where it fits.
    pub fn load_imm(&mut self, dst: Reg, imm: u64) {
        if let Ok(short) = u32::try_from(imm) {
            self.alu32_imm(op::MOV, dst, short as i32);
        } else if i64::from(imm as i64 as i32) == imm as i64 {
            self.mov_imm(dst, imm as i32);
        } else {
            self.plain(LD_IMM64, dst, 0, 0, imm as u32 as i32);
            self.raw(Insn {
                opcode: 0,
                dst: 0,
                src: 0,
                off: 0,
                imm: (imm >> 32) as i32,
            });
        }
    }

    /// Byte swap of the low `size` of `dst`, zero-extended: network order to
    /// host order and back, on a little-endian CPU.
    pub fn to_be(&mut self, size: Size, dst: Reg) {
        self.plain(
            CLASS_ALU32 | op::END | SRC_REG,
            dst,
            0,
            0,
            size.bytes() as i32 * 8,
        );
    }

    /// `dst` = the map itself (for helpers), or the address `offset` bytes into
    /// its only value.
    pub fn map(&mut self, dst: Reg, map: MapRef, value_offset: Option<u32>) {
        self.push(
            Insn {
                opcode: LD_IMM64,
                dst: dst as u8,
                src: if value_offset.is_some() { 2 } else { 1 },
                off: 0,
                imm: 0,
            },
            None,
            Some((map, value_offset)),
        );
        self.raw(Insn {
            opcode: 0,
            dst: 0,
            src: 0,
            off: 0,
            imm: value_offset.unwrap_or(0) as i32,
        });
    }

    /// `dst = *(base + off)`, zero-extended.
    pub fn load(&mut self, size: Size, dst: Reg, base: Reg, off: i16) {
        self.plain(CLASS_LDX | MODE_MEM | size.bits(), dst, base as u8, off, 0);
    }

    /// `dst = *(base + off)`, sign-extended; refused for arena memory
    /// (docs/facts.md, "Arena instructions").
    pub fn load_sx(&mut self, size: Size, dst: Reg, base: Reg, off: i16) {
        self.plain(
            CLASS_LDX | MODE_MEMSX | size.bits(),
            dst,
            base as u8,
            off,
            0,
        );
    }

    /// `*(base + off) = src`.
    pub fn store(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.plain(CLASS_STX | MODE_MEM | size.bits(), base, src as u8, off, 0);
    }

    /// `*(base + off) = imm`.
    pub fn store_imm(&mut self, size: Size, base: Reg, off: i16, imm: i32) {
        self.plain(CLASS_ST | MODE_MEM | size.bits(), base, 0, off, imm);
    }

    /// An atomic operation on `*(base + off)`; `size` is `W` or `D`.
    pub fn atomic(&mut self, what: Atomic, size: Size, base: Reg, off: i16, src: Reg) {
        self.plain(
            CLASS_STX | MODE_ATOMIC | size.bits(),
            base,
            src as u8,
            off,
            what as i32,
        );
    }

    /// Arena address from its low 32 bits: `dst = cast(src)`.
    pub fn arena_cast(&mut self, dst: Reg, src: Reg) {
        self.plain(CLASS_ALU64 | SRC_REG | op::MOV, dst, src as u8, 1, 1);
    }

    /// Calls a helper; `r1`-`r5` are its arguments, `r0` its result.
    pub fn call(&mut self, helper: i32) {
        self.plain(CLASS_JMP | op::CALL, Reg::R0, 0, 0, helper);
    }

    /// Calls a subprogram of one argument, `r1`, or of none; `r0` is its result. What is behind
    /// `to` must be behind all of the program, and not be jumped to. Linux 4.16.
    pub fn call_own(&mut self, to: Label) {
        self.branch(CLASS_JMP | op::CALL, Reg::R0, CALL_OWN, 0, to);
    }

    /// Ends the program, or the subprogram, with `r0`.
    pub fn exit(&mut self) {
        self.plain(CLASS_JMP | op::EXIT, Reg::R0, 0, 0, 0);
    }

    fn branch(&mut self, opcode: u8, dst: Reg, src: u8, imm: i32, to: Label) {
        let insn = Insn {
            opcode,
            dst: dst as u8,
            src,
            off: 0,
            imm,
        };
        self.push(insn, Some(to), None);
    }

    /// Jumps to `to`.
    pub fn jump(&mut self, to: Label) {
        self.branch(CLASS_JMP | op::JA, Reg::R0, 0, 0, to);
    }

    /// Jumps if `dst OP src`, 64 bits.
    pub fn jump_if(&mut self, operation: u8, dst: Reg, src: Reg, to: Label) {
        self.branch(CLASS_JMP | SRC_REG | operation, dst, src as u8, 0, to);
    }

    /// Jumps if `dst OP imm`, 64 bits, the immediate sign-extended.
    pub fn jump_if_imm(&mut self, operation: u8, dst: Reg, imm: i32, to: Label) {
        self.branch(CLASS_JMP | operation, dst, 0, imm, to);
    }

    /// Jumps if `dst OP src`, 32 bits.
    pub fn jump32_if(&mut self, operation: u8, dst: Reg, src: Reg, to: Label) {
        self.branch(CLASS_JMP32 | SRC_REG | operation, dst, src as u8, 0, to);
    }

    /// Jumps if `dst OP imm`, 32 bits.
    pub fn jump32_if_imm(&mut self, operation: u8, dst: Reg, imm: i32, to: Label) {
        self.branch(CLASS_JMP32 | operation, dst, 0, imm, to);
    }

    /// `may_goto` (Linux 6.9): falls through, or jumps to `to` when the
    /// verifier's own loop bound is used up. It satisfies the verifier; the
    /// handler's bound is fuel (docs/facts.md, "Accepted is not bounded").
    pub fn may_goto(&mut self, to: Label) {
        self.branch(CLASS_JMP | op::JCOND, Reg::R0, 0, 0, to);
    }

    /// Resolves labels and drops unreachable code.
    ///
    /// # Panics
    ///
    /// If a jump names a label that was never bound, or the program can run
    /// off its end: both are bugs of a generator.
    #[must_use]
    pub fn finish(self) -> Image {
        let reachable = self.reachable();
        // Positions shift when far conditional jumps grow by one instruction,
        // which can push others out of reach: widen until nothing changes.
        let mut wide = vec![false; self.items.len()];
        loop {
            let position = self.positions(&reachable, &wide);
            let mut changed = false;
            for (i, item) in self.items.iter().enumerate() {
                if !reachable[i] || wide[i] || item.is_call() {
                    continue;
                }
                if let Some(target) = item.target {
                    let distance = position[self.target(target)] as i64 - position[i] as i64 - 1;
                    if distance.abs() > FARTHEST {
                        wide[i] = true;
                        changed = true;
                    }
                }
            }
            if !changed {
                return self.emit(&reachable, &wide, &position);
            }
        }
    }

    fn target(&self, label: Label) -> usize {
        self.labels[label.0 as usize].expect("every label that is jumped to is bound")
    }

    fn reachable(&self) -> Vec<bool> {
        let mut reachable = vec![false; self.items.len()];
        let mut pending = vec![0];
        while let Some(start) = pending.pop() {
            let mut i = start;
            while !reachable[i] {
                reachable[i] = true;
                let item = &self.items[i];
                if let Some(target) = item.target {
                    pending.push(self.target(target));
                }
                let opcode = item.insn.opcode;
                if opcode == CLASS_JMP | op::EXIT || opcode == CLASS_JMP | op::JA {
                    break;
                }
                i += 1;
                assert!(i < self.items.len(), "the program runs off its end");
            }
        }
        reachable
    }

    /// How many instructions an item becomes: far conditional jumps need two,
    /// far `may_goto` three.
    fn width(item: &Item, wide: bool) -> usize {
        match item.insn.opcode {
            _ if !wide => 1,
            opcode if opcode == CLASS_JMP | op::JA => 1,
            opcode if opcode == CLASS_JMP | op::JCOND => 3,
            _ => 2,
        }
    }

    fn positions(&self, reachable: &[bool], wide: &[bool]) -> Vec<usize> {
        let mut position = Vec::with_capacity(self.items.len() + 1);
        let mut next = 0;
        for (i, item) in self.items.iter().enumerate() {
            position.push(next);
            if reachable[i] {
                next += Self::width(item, wide[i]);
            }
        }
        position.push(next);
        position
    }

    fn emit(&self, reachable: &[bool], wide: &[bool], position: &[usize]) -> Image {
        let mut image = Image {
            hook: self.hook,
            ..Image::default()
        };
        let calls = self.items.iter().filter(|item| item.is_call());
        let called: BTreeSet<usize> = calls
            .filter_map(|item| Some(self.target(item.target?)))
            .collect();
        let mut last_line = u32::MAX;
        for (i, item) in self.items.iter().enumerate() {
            if !reachable[i] {
                continue;
            }
            // Every subprogram begins with a line of its own.
            if item.line != last_line || called.contains(&i) {
                last_line = item.line;
                let (file, number) = match item.line {
                    0 => ("ashway", 0),
                    n => {
                        let (file, number) = &self.lines[n as usize - 1];
                        (file.as_str(), *number)
                    }
                };
                // A line record must not start in the middle of an `ld_imm64`.
                if item.insn.opcode != 0 {
                    image.lines.push(Line {
                        insn: image.insns.len() as u32,
                        file: file.to_owned(),
                        number,
                    });
                }
            }
            if let Some((map, value_offset)) = item.map {
                image.maps.push(MapUse {
                    insn: image.insns.len(),
                    map,
                    value_offset,
                });
            }
            let Some(target) = item.target else {
                image.insns.push(item.insn.encode());
                continue;
            };
            let distance = position[self.target(target)] as i64 - position[i] as i64 - 1;
            if item.is_call() {
                let insn = Insn {
                    imm: distance as i32,
                    ..item.insn
                };
                image.insns.push(insn.encode());
            } else if wide[i] {
                Self::emit_far(&mut image.insns, item.insn, distance);
            } else {
                let insn = Insn {
                    off: distance as i16,
                    ..item.insn
                };
                image.insns.push(insn.encode());
            }
        }
        if self.lines.is_empty() {
            image.lines.clear();
        }
        image
    }

    fn emit_far(insns: &mut Vec<u64>, insn: Insn, distance: i64) {
        let gotol = |distance: i64| Insn {
            opcode: CLASS_JMP32 | op::JA,
            dst: 0,
            src: 0,
            off: 0,
            imm: distance as i32,
        };
        let skip = |off| Insn {
            opcode: CLASS_JMP | op::JA,
            dst: 0,
            src: 0,
            off,
            imm: 0,
        };
        match insn.opcode & 0xf0 {
            op::JA => insns.push(gotol(distance).encode()),
            op::JCOND => {
                // may_goto +1; goto +1; gotol target
                insns.push(Insn { off: 1, ..insn }.encode());
                insns.push(skip(1).encode());
                insns.push(gotol(distance - 2).encode());
            }
            operation => {
                let inverse = invert(operation).expect("JSET is only used for near jumps");
                let opcode = insn.opcode & 0x0f | inverse;
                insns.push(
                    Insn {
                        opcode,
                        off: 1,
                        ..insn
                    }
                    .encode(),
                );
                insns.push(gotol(distance - 1).encode());
            }
        }
    }
}

/// The jump that is taken exactly when `operation` is not.
#[must_use]
pub fn invert(operation: u8) -> Option<u8> {
    Some(match operation {
        op::JEQ => op::JNE,
        op::JNE => op::JEQ,
        op::JGT => op::JLE,
        op::JLE => op::JGT,
        op::JGE => op::JLT,
        op::JLT => op::JGE,
        op::JSGT => op::JSLE,
        op::JSLE => op::JSGT,
        op::JSGE => op::JSLT,
        op::JSLT => op::JSGE,
        _ => return None,
    })
}

/// The same relation with its sides exchanged, if it is an order.
pub(crate) const fn mirror(operation: u8) -> u8 {
    match operation {
        op::JGT => op::JLT,
        op::JLT => op::JGT,
        op::JGE => op::JLE,
        op::JLE => op::JGE,
        op::JSGT => op::JSLT,
        op::JSLT => op::JSGT,
        op::JSGE => op::JSLE,
        op::JSLE => op::JSGE,
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Reg::{R0, R1};

    #[test]
    fn leaves_out_what_cannot_be_reached() {
        let mut asm = Assembler::new();
        let end = asm.label();
        asm.mov_imm(R0, 1);
        asm.jump(end);
        asm.mov_imm(R0, 2);
        asm.bind(end);
        asm.exit();
        let image = asm.finish();
        assert_eq!(image.insns.len(), 3);
        assert_eq!(Insn::decode(image.insns[1]).off, 0);
    }

    #[test]
    fn far_conditional_jump_becomes_inverted_jump_and_gotol() {
        let mut asm = Assembler::new();
        let far = asm.label();
        asm.mov_imm(R0, 0);
        asm.jump_if_imm(op::JEQ, R1, 7, far);
        for _ in 0..40_000 {
            asm.alu_imm(op::ADD, R0, 1);
        }
        asm.bind(far);
        asm.exit();
        let image = asm.finish();
        let jump = Insn::decode(image.insns[1]);
        assert_eq!((jump.opcode, jump.off), (CLASS_JMP | op::JNE, 1));
        let gotol = Insn::decode(image.insns[2]);
        assert_eq!((gotol.opcode, gotol.imm), (CLASS_JMP32, 40_000));
        assert_eq!(image.insns.len(), 40_004);
    }

    #[test]
    fn a_subprogram_is_kept_if_it_is_called() {
        let of = |calls: bool| {
            let mut asm = Assembler::new();
            let own = asm.label();
            asm.mov_imm(R0, 0);
            if calls {
                asm.call_own(own);
            }
            for _ in 0..40_000 {
                asm.alu_imm(op::ADD, R0, 1);
            }
            asm.exit();
            asm.bind(own);
            asm.mov_imm(R0, 7);
            asm.exit();
            asm.finish()
        };
        let image = of(true);
        let call = Insn::decode(image.insns[1]);
        assert_eq!((call.opcode, call.src, call.imm), (0x85, 1, 40_001));
        assert_eq!(image.subprograms(), [40_003]);
        assert_eq!(of(false).insns.len(), 40_002);
    }

    #[test]
    fn map_uses_follow_the_instructions_that_moved() {
        let mut asm = Assembler::new();
        let over = asm.label();
        asm.jump(over);
        asm.mov_imm(R0, 9);
        asm.bind(over);
        asm.map(R1, MapRef::Trusted, Some(64));
        asm.mov_imm(R0, 0);
        asm.exit();
        let image = asm.finish();
        assert_eq!(
            image.maps,
            [MapUse {
                insn: 1,
                map: MapRef::Trusted,
                value_offset: Some(64)
            }]
        );
        assert_eq!(image.insns[2] >> 32, 64);
    }

    #[test]
    fn encoding_round_trips() {
        let insn = Insn {
            opcode: 0xbf,
            dst: 3,
            src: 10,
            off: -5,
            imm: -2,
        };
        assert_eq!(Insn::decode(insn.encode()), insn);
    }
}
