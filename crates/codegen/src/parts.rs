//! The few sequences that entry and instance programs share.

use ashway_abi::trusted::HEADERS_BYTES;
use ashway_abi::{Count, MemoryKind, context};
use ashway_check::bpf::{Assembler, Field, Label, MapRef, Reg, Size, helper, op};

use crate::hook;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// Stack slot for the `u32` number of a row of counters.
const ROW_KEY: i16 = -40;

/// Longest message any loop over a packet believes in, in bytes. Frames are
/// linear (no XDP fragments), so under native XDP a page bounds them; generic XDP
/// brings longer ones, which have to be sorted out before.
const MAX_LINEAR: i32 = 4096;

/// Longest payload that is summed, with its UDP header.
pub(crate) const MAX_PAYLOAD: i32 = MAX_LINEAR - UDP_BYTES;

/// Length of a UDP header.
const UDP_BYTES: i32 = 8;

/// `r9` = this CPU's context; jumps to `fail` if this is CPU `cpus` or a later
/// one (never, but the verifier wants to see it asked). Clobbers `r0`-`r5`.
///
/// One value for all CPUs, by its address and the CPU's number: half the
/// instructions of a look-up in a per-CPU map, on the way of every message.
pub(crate) fn find_context(asm: &mut Assembler, cpus: u32, fail: Label) {
    const { assert!(context::BYTES.is_power_of_two()) };
    asm.call(helper::GET_SMP_PROCESSOR_ID);
    asm.jump_if_imm(op::JGE, R0, cpus as i32, fail);
    asm.alu_imm(op::LSH, R0, context::BYTES.trailing_zeros() as i32);
    asm.map(R9, MapRef::Context, Some(0));
    asm.alu(op::ADD, R9, R0);
}

/// `r0` = this CPU's row of counters of the path that the context in `r9` names;
/// jumps to `fail` if there is none. Clobbers `r0`-`r5`.
pub(crate) fn find_row(asm: &mut Assembler, fail: Label) {
    const { assert!(context::ROW == 0, "the context's address is the key's") };
    asm.map(R1, MapRef::Counters, None);
    asm.mov(R2, R9);
    asm.call(helper::MAP_LOOKUP_ELEM);
    asm.jump_if_imm(op::JEQ, R0, 0, fail);
}

/// The same for a row known now, without a context.
pub(crate) fn find_fixed_row(asm: &mut Assembler, row: u32, fail: Label) {
    asm.store_imm(Size::W, R10, ROW_KEY, row as i32);
    asm.map(R1, MapRef::Counters, None);
    asm.mov(R2, R10);
    asm.alu_imm(op::ADD, R2, i32::from(ROW_KEY));
    asm.call(helper::MAP_LOOKUP_ELEM);
    asm.jump_if_imm(op::JEQ, R0, 0, fail);
}

/// Adds 1 to a counter of the row in `row`, and leaves it in `r1`. Not atomic: the row
/// is this CPU's, and XDP programs do not interrupt each other.
pub(crate) fn count(asm: &mut Assembler, row: Reg, which: Count) {
    let off = which as i16 * 8;
    asm.load(Size::D, R1, row, off);
    asm.alu_imm(op::ADD, R1, 1);
    asm.store(Size::D, row, off, R1);
}

/// Adds to the flags that the path brings. Clobbers `r1`.
pub(crate) fn add_flags(asm: &mut Assembler, flags: u32) {
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::OR, R1, flags as i32);
    asm.store(Size::W, R9, context::FLAGS, R1);
}

/// Has the verifier forget what it knows of the number in `reg`: which of several constants it
/// is, after which it would walk what follows once for each, and what it was made of, which it
/// would have to remember of every way that leads here (docs/facts.md, "Laundering").
pub(crate) fn launder(asm: &mut Assembler, reg: Reg) {
    asm.store(Size::D, R9, context::LAUNDERED, reg);
    asm.load(Size::D, reg, R9, context::LAUNDERED);
}

/// Adds to `r5` the 16-bit words of the payload at `r2`, as a plain 64-bit sum to be folded later
/// (RFC 1071 §2(A): the order of the bytes within words does not matter to the sum, so 32-bit
/// loads will do).
///
/// `r8` is `data_end`, `r9` the context with the length; a piece beyond
/// `data_end` goes to `bad`. Clobbers `r0`, `r1`, `r3`, `r4`; leaves `r2`.
///
/// Whole 32 bytes in a loop, the rest by the bits of the length. The loop's index starts from a
/// zero that the verifier does not know, so that it sees few iterations instead of a hundred
/// (docs/facts.md, "Laundering"); each piece of the rest is found by the length alone, so that
/// all ways to it, and over it, are the same to the verifier.
pub(crate) fn add_payload(asm: &mut Assembler, bad: Label) {
    let [rest, fours, end] = [(); 3].map(|()| asm.label());
    asm.load(Size::W, R3, R9, context::PAYLOAD_LEN);
    asm.jump_if_imm(op::JLT, R3, 8, fours);
    asm.jump_if_imm(op::JGT, R3, MAX_LINEAR, bad);
    asm.jump_if_imm(op::JLT, R3, BLOCK, rest);
    asm.load(Size::D, R4, R9, context::ZERO);
    let head = asm.here();
    asm.may_goto(bad);
    asm.jump_if_imm(op::JGT, R4, MAX_LINEAR, bad);
    add_piece(asm, bad, BLOCK);
    asm.alu_imm(op::ADD, R4, BLOCK);
    asm.mov(R0, R4);
    asm.alu_imm(op::ADD, R0, BLOCK);
    asm.jump_if(op::JLE, R0, R3, head);
    // Read again: here the verifier knows that it is 32 at least, on the other way that it is
    // less, and would walk the rest once for each.
    asm.load(Size::W, R3, R9, context::PAYLOAD_LEN);
    asm.jump_if_imm(op::JGT, R3, MAX_LINEAR, bad);
    asm.bind(rest);
    for bytes in [16, 8, 4, 2, 1] {
        let skip = asm.label();
        if bytes == 4 {
            asm.bind(fours);
        }
        if bytes == 2 {
            asm.mov(R4, R3);
            asm.alu_imm(op::AND, R4, 3);
            asm.jump_if_imm(op::JEQ, R4, 0, end);
        }
        asm.mov(R4, R3);
        asm.alu_imm(op::AND, R4, bytes);
        asm.jump_if_imm(op::JEQ, R4, 0, skip);
        asm.mov(R4, R3);
        asm.alu_imm(op::AND, R4, !(2 * bytes - 1));
        add_piece(asm, bad, bytes);
        asm.bind(skip);
    }
    asm.bind(end);
}

/// What the loop over a payload takes at once, in bytes.
const BLOCK: i32 = 32;

/// Adds the `bytes` packet bytes at `r2` + `r4` to `r5`. The caller has bounded `r4` by
/// [`MAX_LINEAR`]. Clobbers `r0`, `r1`.
fn add_piece(asm: &mut Assembler, bad: Label, bytes: i32) {
    asm.mov(R1, R2);
    asm.alu(op::ADD, R1, R4);
    asm.mov(R0, R1);
    asm.alu_imm(op::ADD, R0, bytes);
    asm.jump_if(op::JGT, R0, R8, bad);
    let (size, step) = match bytes {
        1 => (Size::B, 1),
        2 => (Size::H, 2),
        _ => (Size::W, 4),
    };
    for at in (0..bytes as i16).step_by(step) {
        asm.load(size, R0, R1, at);
        asm.alu(op::ADD, R5, R0);
    }
}

/// Folds the 64-bit sum in `sum` to 16 bits (RFC 1071 §4.1), if it is below
/// 2^48: the sum of at most 2^16 32-bit words. Clobbers `tmp`.
pub(crate) fn fold(asm: &mut Assembler, sum: Reg, tmp: Reg) {
    // At most 2^32 + 0xfffe, then 0x1fffe, then 0xffff. Without a jump: behind one the verifier
    // would know the sum, and follow each way that has led to it.
    asm.mov(tmp, sum);
    asm.alu_imm(op::RSH, tmp, 32);
    asm.alu32(op::MOV, sum, sum);
    asm.alu(op::ADD, sum, tmp);
    fold_once(asm, sum, tmp);
    fold_once(asm, sum, tmp);
}

/// The same for a sum below 2^36: at most fifteen 32-bit words.
pub(crate) fn fold_short(asm: &mut Assembler, sum: Reg, tmp: Reg) {
    // 36 -> 21 -> 17, hardly ever more than 16.
    let folded = asm.label();
    fold_once(asm, sum, tmp);
    fold_once(asm, sum, tmp);
    asm.jump_if_imm(op::JLE, sum, 0xffff, folded);
    fold_once(asm, sum, tmp);
    asm.bind(folded);
}

fn fold_once(asm: &mut Assembler, sum: Reg, tmp: Reg) {
    asm.mov(tmp, sum);
    asm.alu_imm(op::RSH, tmp, 16);
    asm.alu_imm(op::AND, sum, 0xffff);
    asm.alu(op::ADD, sum, tmp);
}

/// To `no` unless a sum below 2^46, not 0, folds to all ones: what it covers has a
/// good checksum. Clobbers `sum` and `tmp`.
///
/// It does if it is a multiple of 0xffff. Times that number's inverse modulo 2^64 a multiple
/// is the quotient, here below 2^31, and any other number is above 2^64 / 0xffff (H. S. Warren,
/// *Hacker's Delight*, "Test for Zero Remainder after Division by a Constant"): three
/// instructions in place of the nine that fold.
pub(crate) fn sums_to_ones(asm: &mut Assembler, sum: Reg, tmp: Reg, no: Label) {
    const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
    const { assert!(INVERSE.wrapping_mul(0xffff) == 1) };
    asm.load_imm(tmp, INVERSE);
    asm.alu(op::MUL, sum, tmp);
    asm.jump_if_imm(op::JGT, sum, i32::MAX, no);
}

/// To `fail` unless the frame has `bytes`. `r7` and `r8` are its bounds. Clobbers
/// `r1`.
pub(crate) fn need(asm: &mut Assembler, bytes: i32, fail: Label) {
    asm.mov(R1, R7);
    asm.alu_imm(op::ADD, R1, bytes);
    asm.jump_if(op::JGT, R1, R8, fail);
}

/// Network byte order as a little-endian load sees it.
pub(crate) const fn be16(value: u16) -> i32 {
    value.swap_bytes() as i32
}

/// `r2` = the UDP header, by the context's word, known to the verifier to be
/// there. `r6` is `md`, `r8` the packet's end, `r9` the context. Clobbers
/// `r1`; to `bad` if the header is not there.
pub(crate) fn udp_header(asm: &mut Assembler, bad: Label) {
    asm.load(Size::W, R1, R9, context::PAYLOAD_OFF);
    asm.jump_if_imm(op::JGT, R1, HEADERS_BYTES as i32, bad);
    asm.jump_if_imm(op::JLT, R1, UDP_BYTES, bad);
    asm.alu_imm(op::SUB, R1, UDP_BYTES);
    asm.field(R2, R6, Field::Data);
    asm.alu(op::ADD, R2, R1);
    asm.mov(R1, R2);
    asm.alu_imm(op::ADD, R1, UDP_BYTES);
    asm.jump_if(op::JGT, R1, R8, bad);
}

/// How a program reads a packet at a place known only at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// By packet pointers: with `CAP_PERFMON`.
    Pointers,
    /// By `bpf_xdp_load_bytes`: without it, "packet pointer += register" is
    /// refused (Linux 6.18, `adjust_ptr_min_max_vals`). Linux 5.18.
    Helpers,
}

impl Packet {
    /// How programs that work on this memory do: an array is for processes without
    /// `CAP_PERFMON`, and they may not move packet pointers freely either.
    #[must_use]
    pub const fn beside(memory: MemoryKind) -> Self {
        match memory {
            MemoryKind::Arena => Self::Pointers,
            MemoryKind::Array => Self::Helpers,
        }
    }
}

/// Like [`add_payload`], but through a copy in the context's frames, which are
/// free while trusted code runs: adds the words of the payload and of the
/// `before` bytes in front of it to `r5`. `r6` is `md`, `r9` the context.
/// Clobbers `r0`-`r4`.
pub(crate) fn add_copied(asm: &mut Assembler, before: i32, bad: Label) {
    let head = asm.label();
    let end = asm.label();
    asm.store(Size::D, R9, SUM, R5);
    asm.load(Size::W, R2, R9, context::PAYLOAD_OFF);
    asm.jump_if_imm(op::JLT, R2, before, bad);
    asm.alu_imm(op::SUB, R2, before);
    asm.load(Size::W, R4, R9, context::PAYLOAD_LEN);
    asm.alu_imm(op::ADD, R4, before);
    asm.jump_if_imm(op::JEQ, R4, 0, end);
    asm.jump_if_imm(op::JGT, R4, MAX_LINEAR, bad);
    // Zeros behind the last byte complete its word.
    asm.mov(R3, R9);
    asm.alu(op::ADD, R3, R4);
    asm.store_imm(Size::B, R3, context::FRAMES, 0);
    asm.store_imm(Size::B, R3, context::FRAMES + 1, 0);
    asm.store_imm(Size::B, R3, context::FRAMES + 2, 0);
    asm.mov(R1, R6);
    asm.mov(R3, R9);
    asm.alu_imm(op::ADD, R3, i32::from(context::FRAMES));
    hook::load_bytes(asm);
    asm.jump_if_imm(op::JNE, R0, 0, bad);
    asm.bind(end);
    asm.load(Size::D, R5, R9, SUM);
    asm.load(Size::W, R3, R9, context::PAYLOAD_LEN);
    asm.alu_imm(op::ADD, R3, before);
    asm.store_imm(Size::D, R9, INDEX, 0);
    let done = asm.label();
    asm.bind(head);
    asm.may_goto(bad);
    // The index lives in the context, so that it is as unknown in each turn as
    // in the first: the verifier's Spectre masking wants one bound for all.
    asm.load(Size::D, R4, R9, INDEX);
    asm.jump_if(op::JGE, R4, R3, done);
    asm.mov(R0, R4);
    asm.alu_imm(op::AND, R0, MAX_LINEAR * 2 - 4);
    asm.mov(R1, R9);
    asm.alu(op::ADD, R1, R0);
    asm.load(Size::W, R0, R1, context::FRAMES);
    asm.alu(op::ADD, R5, R0);
    asm.alu_imm(op::ADD, R4, 4);
    asm.store(Size::D, R9, INDEX, R4);
    asm.jump(head);
    asm.bind(done);
}

/// Context: a sum that must survive a helper.
const SUM: i16 = context::SCRATCH + 16;
/// Context: an index that the verifier must not know.
const INDEX: i16 = context::SCRATCH + 24;

#[cfg(test)]
mod tests {
    use super::*;
    use ashway_check::bpf::interp::Machine;

    /// By the program and by RFC 1071's folding.
    fn is_good(sum: u64) -> [bool; 2] {
        let mut asm = Assembler::new();
        let no = asm.label();
        asm.load_imm(R5, sum);
        sums_to_ones(&mut asm, R5, R1, no);
        asm.mov_imm(R0, 1);
        asm.exit();
        asm.bind(no);
        asm.mov_imm(R0, 0);
        asm.exit();
        let program = Machine::new(1, 0, 0).run(&asm.finish(), &[]);
        let mut folded = sum;
        while folded > 0xffff {
            folded = (folded >> 16) + (folded & 0xffff);
        }
        [program == Ok(1), folded == 0xffff]
    }

    /// The sum of a payload of so many bytes; none where it is refused.
    fn sum(len: usize) -> Option<u32> {
        let mut asm = Assembler::new();
        let bad = asm.label();
        asm.mov(R6, R1);
        hook::packet_bounds(&mut asm);
        find_context(&mut asm, 1, bad);
        asm.mov_imm(R1, len as i32);
        asm.store(Size::W, R9, context::PAYLOAD_LEN, R1);
        asm.mov(R2, R7);
        asm.mov_imm(R5, 0);
        add_payload(&mut asm, bad);
        fold(&mut asm, R5, R1);
        asm.mov(R0, R5);
        asm.exit();
        asm.bind(bad);
        asm.mov_imm(R0, -1);
        asm.exit();
        let bytes = payload(len);
        let found = Machine::new(1, 0, 0).run(&asm.finish(), &bytes).unwrap();
        (found != u32::MAX).then_some(found)
    }

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 256 + 7) as u8).collect()
    }

    /// Each byte counts, and counts once, whatever the length.
    #[test]
    fn a_payload_is_summed_to_its_last_byte() {
        for len in 0..=MAX_LINEAR as usize {
            let words = payload(len);
            let words = words.chunks(2).map(|pair| {
                let [low, high] = [0, 1].map(|at| pair.get(at).copied().unwrap_or(0));
                u32::from(u16::from_le_bytes([low, high]))
            });
            let expected: u32 = words.sum();
            let found = sum(len).unwrap();
            assert_eq!(
                (found % 0xffff, found == 0),
                (expected % 0xffff, expected == 0),
                "{len} bytes"
            );
        }
        assert_eq!(sum(MAX_LINEAR as usize + 1), None);
    }

    #[test]
    fn a_sum_folds_to_16_bits() {
        let most = 1_u64 << 48;
        let some = (0..48).flat_map(|bit| [1 << bit, 0xffff << bit, (1 << bit) * 0xffff % most]);
        for near in some.chain([0x1_0000_fffe, most]) {
            for sum in (near.saturating_sub(2)..=near + 2).filter(|sum| *sum < most) {
                let mut asm = Assembler::new();
                asm.load_imm(R5, sum);
                fold(&mut asm, R5, R1);
                asm.mov(R0, R5);
                asm.exit();
                let found = Machine::new(1, 0, 0).run(&asm.finish(), &[]).unwrap();
                let found = u64::from(found);
                assert!(found <= 0xffff, "{sum:#x}: {found:#x}");
                assert_eq!((found % 0xffff, found == 0), (sum % 0xffff, sum == 0));
            }
        }
    }

    #[test]
    fn a_good_checksum_is_a_multiple() {
        let most = 1_u64 << 46;
        let some = (1..46).flat_map(|bit| [1 << bit, (1 << bit) * 0xffff % most]);
        let last = most - most % 0xffff;
        for sum in some.chain([0xffff, 0x1_fffe, last]).filter(|sum| *sum > 1) {
            for sum in sum - 1..=sum + 1 {
                let [program, folded] = is_good(sum);
                assert_eq!(program, folded, "{sum:#x}");
            }
        }
        assert_eq!(is_good(last), [true; 2]);
    }
}
