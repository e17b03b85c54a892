//! Programs as text, in the words of the kernel's verifier log.
//!
//! So a printed program can be read side by side with the log of its load, and
//! compared with a golden file. Two things differ: maps have our names instead
//! of numbers, and the opcode in parentheses is left out.
//!
//! Source: Linux 6.12 `kernel/bpf/disasm.c`, `print_bpf_insn`.

use super::form::{Form, Operand, Order, form};
use super::insn::{Insn, Size, helper, op};
use super::{Image, MapRef};
use std::fmt::Write as _;

/// One line per instruction, `index: text`, with a comment line `; file:line`
/// where the source line changes.
#[must_use]
pub fn print(image: &Image) -> String {
    let mut text = String::new();
    let mut lines = image.lines.iter().peekable();
    let mut maps = image.maps.iter().peekable();
    let mut at = 0;
    while let Some(&raw) = image.insns.get(at) {
        while let Some(line) = lines.next_if(|line| line.insn as usize <= at) {
            // Line 0 stands for code that nobody wrote.
            let _ = match line.number {
                0 => writeln!(text, "; {}", line.file),
                number => writeln!(text, "; {}:{number}", line.file),
            };
        }
        let insn = Insn::decode(raw);
        let words = match (form(insn), image.insns.get(at + 1)) {
            (Some(Form::Imm64 { low }), Some(high)) => {
                let constant = u64::from(low) | high >> 32 << 32;
                let value = match maps.next_if(|used| used.insn == at) {
                    None => format!("{constant:#x}"),
                    Some(used) => match used.value_offset {
                        None => format!("map[{}]", name(used.map)),
                        Some(offset) => format!("map[{}][0]+{offset}", name(used.map)),
                    },
                };
                format!("r{} = {value}", insn.dst)
            }
            _ => print_one(insn),
        };
        let _ = writeln!(text, "{at}: {words}");
        at += match form(insn) {
            Some(Form::Imm64 { .. }) => 2,
            _ => 1,
        };
    }
    text
}

/// An instruction that is one word long.
pub(crate) fn print_one(insn: Insn) -> String {
    let Some(form) = form(insn) else {
        return format!("invalid {:#018x}", insn.encode());
    };
    let Insn { dst, off, .. } = insn;
    let letter = |wide| if wide { 'r' } else { 'w' };
    match form {
        Form::Alu {
            wide,
            op,
            signed,
            src,
        } => {
            let r = letter(wide);
            let sign = if signed { "s" } else { "" };
            let value = decimal(src, r);
            format!("{r}{dst} {sign}{}= {value}", alu(op))
        }
        Form::Neg { wide } => format!("{r}{dst} = -{r}{dst}", r = letter(wide)),
        Form::Mov { wide, from, src } => {
            let r = letter(wide);
            let cast = match from {
                0 => String::new(),
                bits => format!("(s{bits})"),
            };
            format!("{r}{dst} = {cast}{}", decimal(src, r))
        }
        Form::Cast { src } => format!("r{dst} = addr_space_cast(r{src}, 0, 1)"),
        Form::Swap { order, bits } => {
            let name = match order {
                Order::Little => "le",
                Order::Big => "be",
                Order::Swap => "bswap",
            };
            format!("r{dst} = {name}{bits} r{dst}")
        }
        Form::Load { size, signed, src } => {
            let sign = if signed { 's' } else { 'u' };
            format!("r{dst} = *({sign}{} *)(r{src} {off:+})", bits(size))
        }
        Form::Store { size, src } => {
            format!(
                "*(u{} *)(r{dst} {off:+}) = {}",
                bits(size),
                decimal(src, 'r')
            )
        }
        Form::Atomic { wide, what, src } => atomic(insn, wide, what, src),
        Form::Imm64 { .. } => format!("r{dst} = ? (half of an instruction)"),
        Form::Jump {
            distance,
            long: false,
        } => format!("goto pc{distance:+}"),
        Form::Jump { distance, .. } => format!("gotol pc{distance:+}"),
        Form::MayGoto => format!("may_goto pc{off:+}"),
        Form::Branch { wide, op, src } => {
            let r = letter(wide);
            let value = match src {
                Operand::Reg(src) => format!("{r}{src}"),
                Operand::Imm(imm) => format!("{imm:#x}"),
            };
            format!("if {r}{dst} {} {value} goto pc{off:+}", relation(op))
        }
        Form::Call { helper } => format!("call {}#{helper}", helper_name(helper)),
        Form::CallOwn { distance } => format!("call pc{distance:+}"),
        Form::Exit => "exit".to_owned(),
    }
}

fn atomic(insn: Insn, wide: bool, what: i32, src: u8) -> String {
    const FETCH: i32 = 1;
    let Insn { dst, off, .. } = insn;
    let (bits, suffix) = if wide { (64, "64") } else { (32, "") };
    let place = format!("(u{bits} *)(r{dst} {off:+})");
    let (sign, name) = match what & !FETCH {
        0x00 => ("+", "add"),
        0x40 => ("|", "or"),
        0x50 => ("&", "and"),
        0xa0 => ("^", "xor"),
        0xe0 => return format!("r{src} = atomic{suffix}_xchg({place}, r{src})"),
        0xf0 => return format!("r0 = atomic{suffix}_cmpxchg({place}, r0, r{src})"),
        _ => return format!("invalid {:#018x}", insn.encode()),
    };
    if what & FETCH == 0 {
        format!("lock *{place} {sign}= r{src}")
    } else {
        format!("r{src} = atomic{suffix}_fetch_{name}({place}, r{src})")
    }
}

fn decimal(operand: Operand, letter: char) -> String {
    match operand {
        Operand::Reg(register) => format!("{letter}{register}"),
        Operand::Imm(imm) => imm.to_string(),
    }
}

const fn bits(size: Size) -> u32 {
    size.bytes() * 8
}

const fn alu(operation: u8) -> &'static str {
    match operation {
        op::ADD => "+",
        op::SUB => "-",
        op::MUL => "*",
        op::DIV => "/",
        op::OR => "|",
        op::AND => "&",
        op::LSH => "<<",
        op::RSH => ">>",
        op::MOD => "%",
        op::XOR => "^",
        op::ARSH => "s>>",
        _ => "?",
    }
}

const fn relation(operation: u8) -> &'static str {
    match operation {
        op::JEQ => "==",
        op::JGT => ">",
        op::JGE => ">=",
        op::JSET => "&",
        op::JNE => "!=",
        op::JSGT => "s>",
        op::JSGE => "s>=",
        op::JLT => "<",
        op::JLE => "<=",
        op::JSLT => "s<",
        op::JSLE => "s<=",
        _ => "?",
    }
}

fn name(map: MapRef) -> String {
    let word = match map {
        MapRef::Context => "context",
        MapRef::Counters => "counters",
        MapRef::Wake => "wake",
        MapRef::Slots => "slots",
        MapRef::Trusted => "trusted",
        MapRef::Memory => "memory",
        MapRef::Hits => "hits",
        MapRef::Hops => "hops",
        MapRef::Notes => "notes",
        MapRef::Shape(number) => return format!("shape_{number}"),
    };
    word.to_owned()
}

const fn helper_name(number: i32) -> &'static str {
    match number {
        helper::MAP_LOOKUP_ELEM => "bpf_map_lookup_elem",
        helper::KTIME_GET_NS => "bpf_ktime_get_ns",
        helper::GET_SMP_PROCESSOR_ID => "bpf_get_smp_processor_id",
        helper::TAIL_CALL => "bpf_tail_call",
        helper::REDIRECT => "bpf_redirect",
        helper::SKB_LOAD_BYTES => "bpf_skb_load_bytes",
        helper::SKB_CHANGE_TAIL => "bpf_skb_change_tail",
        helper::SKB_PULL_DATA => "bpf_skb_pull_data",
        helper::XDP_ADJUST_HEAD => "bpf_xdp_adjust_head",
        helper::XDP_ADJUST_META => "bpf_xdp_adjust_meta",
        helper::XDP_ADJUST_TAIL => "bpf_xdp_adjust_tail",
        helper::RINGBUF_OUTPUT => "bpf_ringbuf_output",
        helper::CHECK_MTU => "bpf_check_mtu",
        helper::XDP_GET_BUFF_LEN => "bpf_xdp_get_buff_len",
        helper::XDP_LOAD_BYTES => "bpf_xdp_load_bytes",
        helper::XDP_STORE_BYTES => "bpf_xdp_store_bytes",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::Reg::{R0, R1, R2, R3, R9, R10};
    use crate::bpf::{Assembler, Atomic};

    /// What one emitted instruction prints as, without its index.
    #[track_caller]
    fn check(emit: impl FnOnce(&mut Assembler), expected: &str) {
        let mut asm = Assembler::new();
        emit(&mut asm);
        asm.exit();
        let text = print(&asm.finish());
        let first = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("0: "));
        assert_eq!(first, Some(expected));
    }

    #[test]
    fn arithmetic() {
        for (operation, sign) in [
            (op::ADD, "+="),
            (op::SUB, "-="),
            (op::MUL, "*="),
            (op::DIV, "/="),
            (op::OR, "|="),
            (op::AND, "&="),
            (op::LSH, "<<="),
            (op::RSH, ">>="),
            (op::MOD, "%="),
            (op::XOR, "^="),
            (op::ARSH, "s>>="),
            (op::MOV, "="),
        ] {
            check(|asm| asm.alu(operation, R1, R2), &format!("r1 {sign} r2"));
            check(|asm| asm.alu32(operation, R1, R2), &format!("w1 {sign} w2"));
            check(|asm| asm.alu_imm(operation, R1, 7), &format!("r1 {sign} 7"));
            check(
                |asm| asm.alu32_imm(operation, R1, 7),
                &format!("w1 {sign} 7"),
            );
        }
        check(|asm| asm.alu_imm(op::ADD, R1, -7), "r1 += -7");
        check(|asm| asm.signed_div(op::DIV, true, R1, R2), "r1 s/= r2");
        check(|asm| asm.signed_div(op::MOD, false, R1, R2), "w1 s%= w2");
        check(|asm| asm.alu_imm(op::NEG, R1, 0), "r1 = -r1");
        check(|asm| asm.alu32_imm(op::NEG, R1, 0), "w1 = -w1");
        check(|asm| asm.movsx(Size::B, true, R1, R2), "r1 = (s8)r2");
        check(|asm| asm.movsx(Size::H, false, R1, R2), "w1 = (s16)w2");
        check(|asm| asm.movsx(Size::W, true, R1, R2), "r1 = (s32)r2");
        check(|asm| asm.to_be(Size::H, R1), "r1 = be16 r1");
        check(|asm| asm.to_be(Size::D, R1), "r1 = be64 r1");
        check(
            |asm| asm.arena_cast(R1, R2),
            "r1 = addr_space_cast(r2, 0, 1)",
        );
    }

    #[test]
    fn constants_and_maps() {
        check(|asm| asm.load_imm(R1, 7), "w1 = 7");
        check(|asm| asm.load_imm(R1, u64::MAX), "r1 = -1");
        check(
            |asm| asm.load_imm(R1, 0x1122_3344_5566_7788),
            "r1 = 0x1122334455667788",
        );
        check(|asm| asm.map(R1, MapRef::Slots, None), "r1 = map[slots]");
        check(
            |asm| asm.map(R1, MapRef::Trusted, Some(64)),
            "r1 = map[trusted][0]+64",
        );
    }

    #[test]
    fn memory() {
        check(|asm| asm.load(Size::W, R1, R9, 16), "r1 = *(u32 *)(r9 +16)");
        check(|asm| asm.load(Size::B, R1, R9, 0), "r1 = *(u8 *)(r9 +0)");
        check(
            |asm| asm.load_sx(Size::H, R1, R9, -2),
            "r1 = *(s16 *)(r9 -2)",
        );
        check(
            |asm| asm.store(Size::D, R10, -8, R1),
            "*(u64 *)(r10 -8) = r1",
        );
        check(
            |asm| asm.store_imm(Size::H, R9, 4, -1),
            "*(u16 *)(r9 +4) = -1",
        );
        for (what, text) in [
            (Atomic::Add, "lock *(u64 *)(r9 +8) += r2"),
            (Atomic::Or, "lock *(u64 *)(r9 +8) |= r2"),
            (Atomic::And, "lock *(u64 *)(r9 +8) &= r2"),
            (Atomic::Xor, "lock *(u64 *)(r9 +8) ^= r2"),
            (
                Atomic::FetchAdd,
                "r2 = atomic64_fetch_add((u64 *)(r9 +8), r2)",
            ),
            (Atomic::Exchange, "r2 = atomic64_xchg((u64 *)(r9 +8), r2)"),
            (
                Atomic::CompareExchange,
                "r0 = atomic64_cmpxchg((u64 *)(r9 +8), r0, r2)",
            ),
        ] {
            check(|asm| asm.atomic(what, Size::D, R9, 8, R2), text);
        }
        check(
            |asm| asm.atomic(Atomic::Exchange, Size::W, R9, 0, R2),
            "r2 = atomic_xchg((u32 *)(r9 +0), r2)",
        );
    }

    #[test]
    fn jumps_and_calls() {
        for (operation, sign) in [
            (op::JEQ, "=="),
            (op::JGT, ">"),
            (op::JGE, ">="),
            (op::JSET, "&"),
            (op::JNE, "!="),
            (op::JSGT, "s>"),
            (op::JSGE, "s>="),
            (op::JLT, "<"),
            (op::JLE, "<="),
            (op::JSLT, "s<"),
            (op::JSLE, "s<="),
        ] {
            let over = |emit: &dyn Fn(&mut Assembler, super::super::Label), text: String| {
                check(
                    |asm| {
                        let end = asm.label();
                        emit(asm, end);
                        asm.mov_imm(R0, 0);
                        asm.bind(end);
                    },
                    &text,
                );
            };
            let text = |r, value| format!("if {r}1 {sign} {value} goto pc+1");
            over(
                &|asm, end| asm.jump_if(operation, R1, R3, end),
                text('r', "r3"),
            );
            over(
                &|asm, end| asm.jump_if_imm(operation, R1, 10, end),
                text('r', "0xa"),
            );
            over(
                &|asm, end| asm.jump32_if(operation, R1, R3, end),
                text('w', "w3"),
            );
            over(
                &|asm, end| asm.jump32_if_imm(operation, R1, -1, end),
                text('w', "0xffffffff"),
            );
        }
        check(|asm| asm.call(helper::TAIL_CALL), "call bpf_tail_call#12");
        check(Assembler::exit, "exit");
    }

    #[test]
    fn a_loop_with_source_lines() {
        let mut asm = Assembler::new();
        asm.mov_imm(R0, 0);
        asm.line(Some(("echo.c", 12)));
        let head = asm.here();
        let end = asm.label();
        asm.may_goto(end);
        asm.map(R1, MapRef::Memory, Some(0));
        asm.line(Some(("echo.c", 13)));
        asm.jump(head);
        asm.bind(end);
        asm.line(None);
        asm.exit();
        let expected = "\
; ashway
0: r0 = 0
; echo.c:12
1: may_goto pc+3
2: r1 = map[memory][0]+0
; echo.c:13
4: goto pc-4
; ashway
5: exit
";
        assert_eq!(print(&asm.finish()), expected);
    }

    #[test]
    fn far_jumps_and_what_is_no_instruction() {
        let mut asm = Assembler::new();
        let end = asm.label();
        asm.jump_if_imm(op::JEQ, R1, 7, end);
        for _ in 0..40_000 {
            asm.mov_imm(R0, 0);
        }
        asm.bind(end);
        asm.exit();
        let text = print(&asm.finish());
        let start = "0: if r1 != 0x7 goto pc+1\n1: gotol pc+40000\n2: r0 = 0\n";
        assert!(text.starts_with(start));
        let image = Image {
            insns: vec![0xff],
            ..Image::default()
        };
        assert_eq!(print(&image), "0: invalid 0x00000000000000ff\n");
    }
}
