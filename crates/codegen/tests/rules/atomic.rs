//! Atomic accesses, one at a time.
//!
//! Source: WebAssembly threads proposal: as loads and stores, except that the
//! effective address must be a multiple of the width, whatever the immediate
//! says; a read-modify-write gives the old value, zero-extended. Alignment is looked at first,
//! as Wasmtime does it (the proposal leaves the order open).

use super::machine::{Handler, How};
use super::table::Type;
use ashway_abi::Cause;

/// An atomic access.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    /// In the text format.
    pub(crate) name: String,
    ty: Type,
    bytes: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Load,
    Store,
    /// New value from the old one and the operand.
    Modify(Modify),
    CompareExchange,
}

type Modify = fn(u64, u64) -> u64;

const MODIFY: [(&str, Modify); 6] = [
    ("add", u64::wrapping_add),
    ("sub", u64::wrapping_sub),
    ("and", |old, operand| old & operand),
    ("or", |old, operand| old | operand),
    ("xor", |old, operand| old ^ operand),
    ("xchg", |_, operand| operand),
];

/// Every one.
pub(crate) fn atomics() -> Vec<Atomic> {
    let mut atomics = Vec::new();
    for (ty, widths) in [(Type::I32, &[32, 8, 16][..]), (Type::I64, &[64, 8, 16, 32])] {
        for bits in widths {
            let whole = *bits == ty.bits();
            let width = if whole {
                String::new()
            } else {
                bits.to_string()
            };
            let suffix = if whole { "" } else { "_u" };
            let prefix = format!("{}.atomic", ty.name());
            let mut add = |name: String, what| {
                atomics.push(Atomic {
                    name,
                    ty,
                    bytes: u64::from(*bits) / 8,
                    what,
                });
            };
            add(format!("{prefix}.load{width}{suffix}"), What::Load);
            add(format!("{prefix}.store{width}"), What::Store);
            for (operation, modify) in MODIFY {
                let name = format!("{prefix}.rmw{width}.{operation}{suffix}");
                add(name, What::Modify(modify));
            }
            let name = format!("{prefix}.rmw{width}.cmpxchg{suffix}");
            add(name, What::CompareExchange);
        }
    }
    atomics
}

/// Takes address, two operands from the message, and puts the result there.
fn program(atomic: &Atomic, offset: u32, locals: bool) -> String {
    let ty = atomic.ty.name();
    let loads = [
        "(call $load_i32 (i32.const 0))".to_owned(),
        format!("(call $load_{ty} (i32.const 8))"),
        format!("(call $load_{ty} (i32.const 16))"),
    ];
    let (set, operands) = if locals {
        let [address, first, second] = &loads;
        (
            format!("(local.set $at {address}) (local.set $x {first}) (local.set $y {second})"),
            ["(local.get $at)", "(local.get $x)", "(local.get $y)"].map(str::to_owned),
        )
    } else {
        (String::new(), loads)
    };
    let count = match atomic.what {
        What::Load => 1,
        What::Store | What::Modify(_) => 2,
        What::CompareExchange => 3,
    };
    let access = format!(
        "({} offset={offset} {})",
        atomic.name,
        operands[..count].join(" ")
    );
    let done = match (atomic.what, atomic.ty) {
        (What::Store, _) => access,
        (_, Type::I32) => format!("(call $store64 (i32.const 8) (i64.extend_i32_u {access}))"),
        (_, Type::I64) => format!("(call $store64 (i32.const 8) {access})"),
    };
    // Locals are read again behind it: their registers must have been kept.
    format!(
        r#"(module
            (import "ashway" "msg_load32le" (func $load_i32 (param i32) (result i32)))
            (import "ashway" "msg_load64le" (func $load_i64 (param i32) (result i64)))
            (import "ashway" "msg_store64le" (func $store64 (param i32 i64)))
            (memory (export "memory") 1 2)
            (func (export "on_rx") (param i32 i32) (result i32)
                (local $at i32) (local $x {ty}) (local $y {ty})
                {set} {done}
                (i32.eqz (i32.and
                    (i32.eq (local.get $at) (i32.const 0x7654321))
                    (i32.and ({ty}.eq (local.get $x) ({ty}.const 5)) ({ty}.eq (local.get $y) ({ty}.const 6)))))))"#
    )
}

/// Values that carry, borrow, and match in some of their bits.
const VALUES: [u64; 9] = [
    0,
    1,
    0x7f,
    0x80,
    0xffff,
    0x8000_0000,
    0xffff_ffff,
    u64::MAX,
    0x8796_a5b4_c3d2_e1f0,
];

fn prove(atomic: &Atomic, offset: u32, locals: bool, how: How) {
    let mut handler = Handler::new(&program(atomic, offset, locals), how);
    let size = 65_536;
    let n = atomic.bytes * 8;
    let mask = u64::MAX >> (64 - n);
    let mut model = handler.guest().to_vec();
    let mut run = |address: u32, old: u64, x: u64, y: u64| {
        let what = format!(
            "{} offset={offset:#x} at {address:#x}: {old:#x}, {x:#x}, {y:#x}, {how:?}",
            atomic.name
        );
        let mut message = vec![0; 24];
        message[..4].copy_from_slice(&address.to_le_bytes());
        message[8..16].copy_from_slice(&x.to_le_bytes());
        message[16..].copy_from_slice(&y.to_le_bytes());
        let effective = u64::from(address) + u64::from(offset);
        let bytes = effective as usize..(effective + atomic.bytes) as usize;
        let inside = effective + atomic.bytes <= size;
        if inside {
            let word = &old.to_le_bytes()[..atomic.bytes as usize];
            handler.guest_mut()[bytes.clone()].copy_from_slice(word);
            model[bytes.clone()].copy_from_slice(word);
        }
        let outcome = handler.run(&message);
        let cause = if effective % atomic.bytes != 0 {
            Some(Cause::Unaligned)
        } else if inside {
            None
        } else {
            Some(Cause::MemoryBounds)
        };
        assert_eq!(outcome.cause(), cause, "{what}");
        if cause.is_some() {
            return;
        }
        let old = old & mask;
        let new = match atomic.what {
            What::Store => x,
            What::Modify(modify) => modify(old, x),
            // The expected value is wrapped to the width as well.
            What::CompareExchange if old == x & mask => y,
            What::Load | What::CompareExchange => old,
        };
        let stored = &new.to_le_bytes()[..atomic.bytes as usize];
        model[bytes.clone()].copy_from_slice(stored);
        let near = bytes.start.saturating_sub(16)..bytes.end + 16;
        assert_eq!(handler.guest()[near.clone()], model[near], "{what}");
        if !matches!(atomic.what, What::Store) {
            assert_eq!(outcome.message[8..16], old.to_le_bytes(), "{what}");
        }
    };
    for old in VALUES {
        for x in VALUES {
            for y in [0x1122_3344_5566_7788, old] {
                run(64, old, x, y);
                // What a narrow compare-exchange finds equal.
                run(64, old, old & mask, y);
            }
        }
    }
    let ends = [0, size, 1 << 31, 1 << 32].map(|end: u64| end.wrapping_sub(offset.into()));
    for end in ends {
        for step in 0..=34 {
            let address = end.wrapping_add(step).wrapping_sub(17) as u32;
            run(address, VALUES[8], 3, 4);
        }
    }
    assert!(handler.guest() == model, "{} wrote elsewhere", atomic.name);
}

#[test]
fn every_atomic_access_has_its_meaning_and_bounds() {
    for atomic in atomics() {
        for how in [How::REGISTERS, How::FRAMES, How::ARRAY] {
            for (offset, locals) in [
                (0, false),
                (0, true),
                (8, false),
                (0x8000, true),
                (0xffff_fff8, false),
                (3, false),
            ] {
                prove(&atomic, offset, locals, how);
            }
        }
    }
}
