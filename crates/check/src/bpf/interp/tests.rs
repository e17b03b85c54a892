use super::space::{MD, MEMORY, PACKET, STACK};
use super::*;

use crate::bpf::Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use crate::bpf::{Assembler, Atomic, Insn, MapRef, Reg, Size, helper, op};

const PASS: i32 = 2;

fn machine() -> Machine {
    Machine::new(2, ashway_abi::trusted::bytes(1), 2 * 65536)
}

fn assemble(body: impl FnOnce(&mut Assembler)) -> Image {
    let mut asm = Assembler::new();
    body(&mut asm);
    asm.finish()
}

/// The 64 bits that `body` leaves in `r0`.
fn value(body: impl FnOnce(&mut Assembler)) -> u64 {
    let mut machine = machine();
    let image = assemble(|asm| {
        body(asm);
        asm.mov_imm(R1, 0);
        asm.arena_cast(R1, R1);
        asm.store(Size::D, R1, 0, R0);
        asm.mov_imm(R0, 0);
        asm.exit();
    });
    assert_eq!(machine.run(&image, &[]), Ok(0));
    u64::from_le_bytes(machine.memory()[..8].try_into().unwrap())
}

/// Why `body` followed by `exit` is stopped.
fn reason(body: impl FnOnce(&mut Assembler)) -> Reason {
    let image = assemble(|asm| {
        body(asm);
        asm.exit();
    });
    machine().run(&image, &[0; 64]).unwrap_err().reason
}

fn alu(wide: bool, operation: u8, a: u64, b: u64) -> u64 {
    value(|asm| {
        asm.load_imm(R0, a);
        asm.load_imm(R2, b);
        if wide {
            asm.alu(operation, R0, R2);
        } else {
            asm.alu32(operation, R0, R2);
        }
    })
}

fn signed(wide: bool, operation: u8, a: i64, b: i64) -> i64 {
    value(|asm| {
        asm.load_imm(R0, a as u64);
        asm.load_imm(R2, b as u64);
        asm.signed_div(operation, wide, R0, R2);
    }) as i64
}

#[test]
fn a_subprogram_has_its_arguments_and_leaves_a_result() {
    let run = |body: fn(&mut Assembler)| {
        let image = assemble(|asm| {
            let own = asm.label();
            asm.mov_imm(R1, 20);
            asm.mov_imm(R6, 1);
            asm.call_own(own);
            asm.alu(op::ADD, R0, R6);
            asm.exit();
            asm.bind(own);
            body(asm);
            asm.exit();
        });
        machine().run(&image, &[])
    };
    let doubled = |asm: &mut Assembler| {
        asm.mov(R6, R1);
        asm.mov(R0, R6);
        asm.alu(op::ADD, R0, R1);
    };
    assert_eq!(run(doubled), Ok(41));
    for read in [R6, R10] {
        let body: fn(&mut Assembler) = match read {
            R6 => |asm| asm.mov(R0, R6),
            _ => |asm| asm.mov(R0, R10),
        };
        let reason = run(body).unwrap_err().reason;
        assert_eq!(reason, Reason::NeverWritten(read as u8));
    }
}

#[test]
fn alu_in_64_bits() {
    let big = 0x8000_0000_0000_0001;
    assert_eq!(alu(true, op::ADD, u64::MAX, 2), 1);
    assert_eq!(alu(true, op::SUB, 1, 2), u64::MAX);
    assert_eq!(alu(true, op::MUL, big, 3), 0x8000_0000_0000_0003);
    assert_eq!(alu(true, op::DIV, big, 2), 0x4000_0000_0000_0000);
    assert_eq!(alu(true, op::DIV, big, 0), 0);
    assert_eq!(alu(true, op::MOD, big, 0), big);
    assert_eq!(alu(true, op::MOD, big, 10), big % 10);
    assert_eq!(alu(true, op::OR, big, 6), big | 6);
    assert_eq!(alu(true, op::AND, big, 3), 1);
    assert_eq!(alu(true, op::XOR, big, 3), big ^ 3);
    assert_eq!(alu(true, op::LSH, big, 65), 2);
    assert_eq!(alu(true, op::RSH, big, 63), 1);
    assert_eq!(alu(true, op::ARSH, big, 63), u64::MAX);
    assert_eq!(alu(true, op::MOV, 0, big), big);
}

#[test]
fn alu_in_32_bits_zero_extends() {
    let high = 0xdead_beef_0000_0000;
    assert_eq!(alu(false, op::ADD, high | 0xffff_ffff, 2), 1);
    assert_eq!(alu(false, op::SUB, high, 1), 0xffff_ffff);
    assert_eq!(alu(false, op::DIV, high | 8, high | 2), 4);
    assert_eq!(alu(false, op::DIV, 8, high), 0);
    assert_eq!(alu(false, op::MOD, high | 8, high), 8);
    assert_eq!(alu(false, op::LSH, 1, 33), 2);
    assert_eq!(alu(false, op::RSH, high | 0x8000_0000, 31), 1);
    assert_eq!(alu(false, op::ARSH, 0x8000_0000, 31), 0xffff_ffff);
    assert_eq!(alu(false, op::MOV, 0, high | 5), 5);
    let immediate = value(|asm| {
        asm.mov_imm(R0, -1);
        asm.alu32_imm(op::AND, R0, -16);
    });
    assert_eq!(immediate, 0xffff_fff0);
}

#[test]
fn signed_division() {
    assert_eq!(signed(true, op::DIV, -7, 2), -3);
    assert_eq!(signed(true, op::MOD, -7, 2), -1);
    assert_eq!(signed(true, op::DIV, i64::MIN, -1), i64::MIN);
    assert_eq!(signed(true, op::MOD, i64::MIN, -1), 0);
    assert_eq!(signed(true, op::DIV, 5, 0), 0);
    assert_eq!(signed(false, op::DIV, -7, 2), 0xffff_fffd);
    assert_eq!(signed(false, op::MOD, -7, 2), 0xffff_ffff);
    assert_eq!(signed(false, op::DIV, i32::MIN.into(), -1), 0x8000_0000);
    assert_eq!(signed(false, op::MOD, i32::MIN.into(), -1), 0);
    assert_eq!(signed(false, op::MOD, -7, 0), 0xffff_fff9);
}

#[test]
fn negation_sign_extension_and_byte_order() {
    let unary = |from: u64, what: &dyn Fn(&mut Assembler)| {
        value(|asm| {
            asm.load_imm(R0, from);
            what(asm);
        })
    };
    let number = 0x1122_3344_5566_8899;
    assert_eq!(unary(5, &|asm| asm.alu_imm(op::NEG, R0, 0)), -5_i64 as u64);
    assert_eq!(unary(5, &|asm| asm.alu32_imm(op::NEG, R0, 0)), 0xffff_fffb);
    assert_eq!(
        unary(number, &|asm| asm.movsx(Size::B, true, R0, R0)),
        0xffff_ffff_ffff_ff99
    );
    assert_eq!(
        unary(number, &|asm| asm.movsx(Size::H, false, R0, R0)),
        0xffff_8899
    );
    assert_eq!(
        unary(number, &|asm| asm.movsx(Size::W, true, R0, R0)),
        0x5566_8899
    );
    assert_eq!(unary(number, &|asm| asm.to_be(Size::H, R0)), 0x9988);
    assert_eq!(unary(number, &|asm| asm.to_be(Size::W, R0)), 0x9988_6655);
    assert_eq!(
        unary(number, &|asm| asm.to_be(Size::D, R0)),
        0x9988_6655_4433_2211
    );
    let raw = |opcode, imm| Insn {
        opcode,
        dst: 0,
        src: 0,
        off: 0,
        imm,
    };
    assert_eq!(unary(number, &|asm| asm.raw(raw(0xd4, 16))), 0x8899);
    assert_eq!(unary(number, &|asm| asm.raw(raw(0xd7, 32))), 0x9988_6655);
}

#[test]
fn every_comparison_in_both_widths() {
    let taken = |wide: bool, operation: u8, a: i64, b: i64| {
        let immediate = value(|asm| {
            let yes = asm.label();
            asm.load_imm(R2, a as u64);
            asm.mov_imm(R0, 1);
            if wide {
                asm.jump_if_imm(operation, R2, b as i32, yes);
            } else {
                asm.jump32_if_imm(operation, R2, b as i32, yes);
            }
            asm.mov_imm(R0, 0);
            asm.bind(yes);
        });
        let register = value(|asm| {
            let yes = asm.label();
            asm.load_imm(R2, a as u64);
            asm.load_imm(R3, b as u64);
            asm.mov_imm(R0, 1);
            if wide {
                asm.jump_if(operation, R2, R3, yes);
            } else {
                asm.jump32_if(operation, R2, R3, yes);
            }
            asm.mov_imm(R0, 0);
            asm.bind(yes);
        });
        assert_eq!(immediate, register);
        register == 1
    };
    let pairs = [(0, 0), (1, 2), (2, 1), (-1, 1), (1, -1), (-5, -3)];
    for (a, b) in pairs {
        // The high half must not matter in 32 bits.
        let dirty = a ^ 0x7f00_0000_0000_0000;
        let (ua, ub) = (a as u64, b as u64);
        for (operation, expected) in [
            (op::JEQ, a == b),
            (op::JNE, a != b),
            (op::JSET, a & b != 0),
            (op::JGT, ua > ub),
            (op::JGE, ua >= ub),
            (op::JLT, ua < ub),
            (op::JLE, ua <= ub),
            (op::JSGT, a > b),
            (op::JSGE, a >= b),
            (op::JSLT, a < b),
            (op::JSLE, a <= b),
        ] {
            assert_eq!(taken(true, operation, a, b), expected, "{operation:#x}");
            assert_eq!(
                taken(false, operation, dirty, b),
                expected,
                "{operation:#x}"
            );
        }
    }
}

#[test]
fn far_jumps_and_may_goto() {
    let far = value(|asm| {
        let end = asm.label();
        asm.mov_imm(R0, 1);
        asm.jump_if_imm(op::JEQ, R0, 1, end);
        for _ in 0..40_000 {
            asm.alu_imm(op::ADD, R0, 1);
        }
        asm.bind(end);
    });
    assert_eq!(far, 1);

    let image = assemble(|asm| {
        asm.mov_imm(R0, 0);
        let head = asm.here();
        let end = asm.label();
        asm.may_goto(end);
        asm.alu_imm(op::ADD, R0, 1);
        asm.jump(head);
        asm.bind(end);
        asm.exit();
    });
    let mut machine = machine();
    machine.may_goto_limit = 1000;
    assert_eq!(machine.run(&image, &[]), Ok(1000));
    machine.may_goto_limit = u64::MAX;
    machine.insn_limit = 5000;
    let stopped = machine.run(&image, &[]).unwrap_err();
    assert_eq!(stopped.reason, Reason::TooLong(5000));
}

#[test]
fn loads_and_stores_of_every_width() {
    let read = |size, signed: bool| {
        value(|asm| {
            asm.load_imm(R2, 0x8182_8384_8586_8788);
            asm.store(Size::D, R10, -8, R2);
            if signed {
                asm.load_sx(size, R0, R10, -8);
            } else {
                asm.load(size, R0, R10, -8);
            }
        })
    };
    assert_eq!(read(Size::B, false), 0x88);
    assert_eq!(read(Size::H, false), 0x8788);
    assert_eq!(read(Size::W, false), 0x8586_8788);
    assert_eq!(read(Size::D, false), 0x8182_8384_8586_8788);
    assert_eq!(read(Size::B, true), 0xffff_ffff_ffff_ff88);
    assert_eq!(read(Size::H, true), 0xffff_ffff_ffff_8788);
    assert_eq!(read(Size::W, true), 0xffff_ffff_8586_8788);
    let write = |size| {
        value(|asm| {
            asm.store_imm(Size::D, R10, -8, 0);
            asm.store_imm(size, R10, -8, -2);
            asm.load(Size::D, R0, R10, -8);
        })
    };
    assert_eq!(write(Size::B), 0xfe);
    assert_eq!(write(Size::H), 0xfffe);
    assert_eq!(write(Size::W), 0xffff_fffe);
    assert_eq!(write(Size::D), -2_i64 as u64);
}

/// `r0 | memory << 32` after one atomic on a word that holds `old`.
fn atomic(size: Size, what: i32, old: i32, operand: i32, expected: i32) -> (u64, u64, u64) {
    let mut machine = machine();
    let image = assemble(|asm| {
        asm.mov_imm(R1, 64);
        asm.arena_cast(R1, R1);
        asm.store_imm(Size::D, R1, 0, -1);
        asm.store_imm(size, R1, 0, old);
        asm.mov_imm(R0, expected);
        asm.mov_imm(R2, operand);
        asm.raw(Insn {
            opcode: if size == Size::D { 0xdb } else { 0xc3 },
            dst: 1,
            src: 2,
            off: 0,
            imm: what,
        });
        asm.store(Size::D, R1, 8, R0);
        asm.store(Size::D, R1, 16, R2);
        asm.mov_imm(R0, 0);
        asm.exit();
    });
    machine.run(&image, &[]).unwrap();
    let word = |at: usize| u64::from_le_bytes(machine.memory()[at..at + 8].try_into().unwrap());
    (word(64), word(72), word(80))
}

#[test]
fn atomics() {
    let keep = 0xffff_ffff_0000_0000;
    // (memory, r0, r2) afterwards.
    assert_eq!(atomic(Size::D, Atomic::Add as i32, 5, 7, 1), (12, 1, 7));
    assert_eq!(atomic(Size::D, Atomic::Or as i32, 5, 2, 1), (7, 1, 2));
    assert_eq!(atomic(Size::D, Atomic::And as i32, 5, 4, 1), (4, 1, 4));
    assert_eq!(atomic(Size::D, Atomic::Xor as i32, 5, 4, 1), (1, 1, 4));
    let add = Atomic::FetchAdd as i32;
    assert_eq!(atomic(Size::D, add, 5, 7, 1), (12, 1, 5));
    assert_eq!(atomic(Size::W, add, -1, 2, 1), (keep | 1, 1, 0xffff_ffff));
    assert_eq!(atomic(Size::D, 0x41, 5, 2, 1), (7, 1, 5));
    assert_eq!(atomic(Size::D, 0x51, 5, 4, 1), (4, 1, 5));
    assert_eq!(atomic(Size::W, 0xa1, 5, 4, 1), (keep | 1, 1, 5));
    let exchange = Atomic::Exchange as i32;
    assert_eq!(atomic(Size::W, exchange, 5, 7, 1), (keep | 7, 1, 5));
    let compare = Atomic::CompareExchange as i32;
    assert_eq!(atomic(Size::D, compare, 5, 7, 5), (7, 5, 7));
    assert_eq!(atomic(Size::D, compare, 5, 7, 6), (5, 5, 7));
    let word = atomic(Size::W, compare, -5, 7, -5);
    assert_eq!(word, (keep | 7, 0xffff_fffb, 7));
}

#[test]
fn faults_name_the_instruction_and_the_reason() {
    let image = assemble(|asm| {
        asm.mov_imm(R0, 0);
        asm.load(Size::B, R2, R0, 0);
        asm.exit();
    });
    let fault = machine().run(&image, &[]).unwrap_err();
    let text = "instruction 1: 1 bytes at 0x0 are in no region";
    assert_eq!(fault.to_string(), text);

    assert_eq!(reason(|_| ()), Reason::NeverWritten(0));
    assert_eq!(reason(|asm| asm.mov(R0, R5)), Reason::NeverWritten(5));
    assert_eq!(reason(|asm| asm.mov_imm(R10, 0)), Reason::ReadOnly(10));
    assert_eq!(reason(|asm| asm.call(999)), Reason::NoSuchHelper(999));
    let clobbered = reason(|asm| {
        asm.call(helper::KTIME_GET_NS);
        asm.mov(R0, R1);
    });
    assert_eq!(clobbered, Reason::NeverWritten(1));
    let kfunc = Insn {
        opcode: 0x85,
        dst: 0,
        src: 2,
        off: 0,
        imm: 1,
    };
    let raw = kfunc.encode();
    assert_eq!(reason(|asm| asm.raw(kfunc)), Reason::NoSuchInsn(raw));
    // Constants that the verifier refuses, too.
    for (operation, imm) in [(op::DIV, 0), (op::MOD, 0), (op::LSH, 32), (op::RSH, -1)] {
        let refused = reason(|asm| {
            asm.mov_imm(R0, 1);
            asm.alu32_imm(operation, R0, imm);
        });
        assert!(matches!(refused, Reason::NoSuchInsn(_)));
    }
}

#[test]
fn every_region_ends_where_it_ends() {
    let outside = |address, len| Reason::Outside { address, len };
    // The frame: 64 bytes, no metadata.
    let packet = |field: i16, size, off| {
        reason(|asm| {
            asm.load(Size::W, R2, R1, field);
            asm.load(size, R0, R2, off);
            asm.mov(R0, R5);
        })
    };
    let start = PACKET + HEADROOM as u64;
    assert_eq!(packet(0, Size::B, 63), Reason::NeverWritten(5));
    assert_eq!(packet(0, Size::H, 63), outside(start + 63, 2));
    assert_eq!(packet(0, Size::B, -1), outside(start - 1, 1));
    assert_eq!(packet(4, Size::B, 0), outside(start + 64, 1));
    assert_eq!(packet(8, Size::B, -1), outside(start - 1, 1));
    // The stack.
    let stack = |size, off| {
        reason(|asm| {
            asm.store_imm(size, R10, off, 0);
            asm.mov(R0, R5);
        })
    };
    assert_eq!(stack(Size::D, -512), Reason::NeverWritten(5));
    assert_eq!(stack(Size::D, -520), outside(STACK - 8, 8));
    assert_eq!(stack(Size::B, 0), outside(STACK + 512, 1));
    let address = STACK + 508;
    assert_eq!(stack(Size::D, -4), Reason::Misaligned { address, len: 8 });
    // The context structure: whole fields, never written.
    let field = |size, off| reason(|asm| asm.load(size, R0, R1, off));
    assert_eq!(field(Size::W, 20), outside(MD + 20, 4));
    assert_eq!(field(Size::D, 0), outside(MD, 8));
    let store = reason(|asm| asm.store_imm(Size::W, R1, 12, 0));
    assert_eq!(store, outside(MD + 12, 4));
    // The arena, at its end, and a row of counters.
    let arena = reason(|asm| {
        asm.mov_imm(R2, 2 * 65536 - 1);
        asm.arena_cast(R2, R2);
        asm.load(Size::H, R0, R2, 0);
    });
    assert_eq!(arena, outside(MEMORY + 0x1_ffff, 2));
    let row = reason(|asm| {
        lookup(asm, MapRef::Counters, 0);
        asm.load(Size::D, R0, R0, KERNEL_BYTES as i16);
    });
    assert!(matches!(row, Reason::Outside { len: 8, .. }));
    // Atomics: aligned, and not in the frame.
    let frame = reason(|asm| {
        asm.load(Size::W, R2, R1, 0);
        asm.mov_imm(R3, 0);
        asm.atomic(Atomic::Add, Size::W, R2, 0, R3);
    });
    assert_eq!(frame, outside(start, 4));
}

/// `r0` = the address of the map's value for `key`, checked.
fn lookup(asm: &mut Assembler, map: MapRef, key: i32) {
    let found = asm.label();
    asm.store_imm(Size::W, R10, -4, key);
    asm.mov(R2, R10);
    asm.alu_imm(op::ADD, R2, -4);
    asm.map(R1, map, None);
    asm.call(helper::MAP_LOOKUP_ELEM);
    asm.jump_if_imm(op::JNE, R0, 0, found);
    asm.mov_imm(R0, 0);
    asm.exit();
    asm.bind(found);
}

#[test]
fn maps_by_lookup_and_by_address() {
    let image = assemble(|asm| {
        lookup(asm, MapRef::Context, 0);
        asm.store_imm(Size::W, R0, context::ROW, 7);
        asm.map(R6, MapRef::Trusted, Some(64));
        asm.store_imm(Size::W, R6, 0, 8);
        lookup(asm, MapRef::Counters, 2);
        asm.mov_imm(R0, 1);
        asm.exit();
    });
    let mut machine = machine();
    assert_eq!(machine.run(&image, &[]), Ok(0), "there are two rows only");
    assert_eq!(machine.context_u32(context::ROW), 7);
    assert_eq!(machine.trusted_u32(ashway_abi::trusted::NEED_WAKE), 8);

    let memory = assemble(|asm| {
        asm.map(R6, MapRef::Memory, Some(0x1_0000));
        asm.store_imm(Size::B, R6, 4, 9);
        asm.mov_imm(R0, PASS);
        asm.exit();
    });
    assert_eq!(
        machine.run(&memory, &[]).unwrap_err().reason,
        Reason::NoValue
    );
    machine.array_mode = true;
    assert_eq!(machine.run(&memory, &[]), Ok(2));
    assert_eq!(machine.memory()[0x1_0004], 9);
    let cast = assemble(|asm| {
        asm.mov_imm(R0, 0);
        asm.arena_cast(R0, R0);
        asm.exit();
    });
    assert_eq!(machine.run(&cast, &[]).unwrap_err().reason, Reason::NoArena);
}

fn tail_call(asm: &mut Assembler, context: Reg, slot: i32) {
    asm.mov(R1, context);
    asm.map(R2, MapRef::Slots, None);
    asm.mov_imm(R3, slot);
    asm.call(helper::TAIL_CALL);
}

#[test]
fn tail_calls_start_afresh_and_end_at_33() {
    let mut machine = machine();
    let empty = assemble(|asm| {
        asm.mov(R6, R1);
        tail_call(asm, R6, 0);
        tail_call(asm, R6, 5);
        asm.mov_imm(R0, PASS);
        asm.exit();
    });
    machine.slots = vec![None];
    assert_eq!(machine.run(&empty, &[]), Ok(2));

    let counting = assemble(|asm| {
        asm.mov(R6, R1);
        asm.mov_imm(R0, 0);
        asm.arena_cast(R1, R0);
        asm.mov_imm(R2, 1);
        asm.atomic(Atomic::Add, Size::W, R1, 0, R2);
        tail_call(asm, R6, 0);
        asm.mov_imm(R0, PASS);
        asm.exit();
    });
    machine.slots = vec![Some(counting.clone())];
    assert_eq!(machine.run(&counting, &[]), Ok(2));
    assert_eq!((machine.tail_calls, machine.memory()[0]), (33, 34));
    assert!(machine.slots[0].is_some(), "a run gives the slots back");

    let forgetful = assemble(|asm| {
        asm.mov(R0, R6);
        asm.exit();
    });
    machine.slots = vec![Some(forgetful)];
    let fault = machine.run(&counting, &[]).unwrap_err();
    assert_eq!(fault.slot, Some(0));
    assert_eq!(fault.reason, Reason::NeverWritten(6));
}

#[test]
fn clock_wake_ring_redirect_and_packet_helpers() {
    let image = assemble(|asm| {
        asm.mov(R9, R1);
        asm.call(helper::KTIME_GET_NS);
        asm.mov(R6, R0);
        asm.call(helper::KTIME_GET_NS);
        asm.alu(op::SUB, R0, R6);
        asm.mov(R8, R0);
        // Metadata of 4 bytes, which then takes a store.
        asm.mov(R1, R9);
        asm.mov_imm(R2, -4);
        asm.call(helper::XDP_ADJUST_META);
        asm.alu(op::ADD, R8, R0);
        asm.load(Size::W, R2, R9, 8);
        asm.store_imm(Size::W, R2, 0, 0x0403_0201);
        // Frame bytes 1..4 onto the stack, then one byte too many.
        for at in [1, 62] {
            asm.mov(R1, R9);
            asm.mov_imm(R2, at);
            asm.mov(R3, R10);
            asm.alu_imm(op::ADD, R3, -8);
            asm.mov_imm(R4, 3);
            asm.call(helper::XDP_LOAD_BYTES);
            asm.alu(op::ADD, R8, R0);
        }
        asm.map(R1, MapRef::Wake, None);
        asm.mov(R2, R10);
        asm.alu_imm(op::ADD, R2, -8);
        asm.mov_imm(R3, 8);
        asm.mov_imm(R4, 0);
        asm.call(helper::RINGBUF_OUTPUT);
        asm.alu(op::ADD, R8, R0);
        asm.load(Size::W, R7, R10, -8);
        asm.mov_imm(R1, 0);
        asm.arena_cast(R1, R1);
        asm.store(Size::W, R1, 0, R7);
        asm.store(Size::W, R1, 4, R8);
        asm.load(Size::W, R1, R9, 12);
        asm.mov_imm(R2, 0);
        asm.call(helper::REDIRECT);
        asm.exit();
    });
    let mut machine = machine();
    machine.ifindex = 9;
    let mut frame = [0; 64];
    frame[..4].copy_from_slice(&[10, 11, 12, 13]);
    assert_eq!(machine.run(&image, &frame), Ok(4));
    assert_eq!(machine.redirects, [(9, 0)]);
    assert_eq!(machine.wakes, 1);
    assert_eq!(machine.metadata(), [1, 2, 3, 4]);
    assert_eq!(machine.memory()[..4], [11, 12, 13, 0xa5]);
    let sum = i32::from_le_bytes(machine.memory()[4..8].try_into().unwrap());
    assert_eq!(sum, 1000 - 22);
}

#[test]
fn a_program_that_reads_the_frame_and_counts() {
    let image = assemble(|asm| {
        let pass = asm.label();
        asm.load(Size::W, R6, R1, 0);
        asm.load(Size::W, R7, R1, 4);
        asm.mov(R2, R6);
        asm.alu_imm(op::ADD, R2, 14);
        asm.jump_if(op::JGT, R2, R7, pass);
        asm.load(Size::H, R8, R6, 12);
        asm.to_be(Size::H, R8);
        asm.jump_if_imm(op::JNE, R8, 0x0800, pass);
        asm.store_imm(Size::B, R6, 0, 0xff);
        lookup(asm, MapRef::Counters, 1);
        asm.mov_imm(R1, 1);
        asm.atomic(Atomic::Add, Size::D, R0, Count::Received as i16 * 8, R1);
        asm.atomic(Atomic::Add, Size::D, R0, Count::Consumed as i16 * 8, R1);
        asm.mov_imm(R0, 1);
        asm.exit();
        asm.bind(pass);
        asm.mov_imm(R0, PASS);
        asm.exit();
    });
    let mut machine = machine();
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    assert_eq!(machine.run(&image, &frame), Ok(1));
    assert_eq!(machine.run(&image, &frame), Ok(1));
    assert_eq!(machine.run(&image, &frame[..13]), Ok(2));
    assert_eq!(machine.packet(), &frame[..13]);
    frame[12] = 0x86;
    assert_eq!(machine.run(&image, &frame), Ok(2));
    assert_eq!(machine.count(1, Count::Received), 2);
    assert_eq!(machine.count(1, Count::Consumed), 2);
    assert_eq!(machine.count(0, Count::Received), 0);
}
