//! Loads and stores: width, extension, and every bound.
//!
//! Source: WebAssembly specification 2.0, §4.4.7 (memory instructions): the
//! effective address is the sum of operand and immediate without a bound, the
//! access traps unless all its bytes are in memory, and bytes are in
//! little-endian order.

use super::machine::{Handler, How};
use ashway_abi::Cause;

const PAGE: u64 = 65_536;

/// A load or store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// In the text format.
    pub(crate) name: &'static str,
    wide: bool,
    bytes: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Load { signed: bool },
    Store,
}

const U: What = What::Load { signed: false };
const S: What = What::Load { signed: true };

const fn access(name: &'static str, wide: bool, bytes: u64, what: What) -> Access {
    Access {
        name,
        wide,
        bytes,
        what,
    }
}

/// Every one.
pub(crate) const ACCESSES: [Access; 19] = [
    access("i32.load", false, 4, U),
    access("i32.load8_u", false, 1, U),
    access("i32.load8_s", false, 1, S),
    access("i32.load16_u", false, 2, U),
    access("i32.load16_s", false, 2, S),
    access("i64.load", true, 8, U),
    access("i64.load8_u", true, 1, U),
    access("i64.load8_s", true, 1, S),
    access("i64.load16_u", true, 2, U),
    access("i64.load16_s", true, 2, S),
    access("i64.load32_u", true, 4, U),
    access("i64.load32_s", true, 4, S),
    access("i32.store", false, 4, What::Store),
    access("i32.store8", false, 1, What::Store),
    access("i32.store16", false, 2, What::Store),
    access("i64.store", true, 8, What::Store),
    access("i64.store8", true, 1, What::Store),
    access("i64.store16", true, 2, What::Store),
    access("i64.store32", true, 4, What::Store),
];

impl Access {
    /// What it loads from these bytes, as an `i64` zero-extended from its type.
    fn loaded(&self, signed: bool, bytes: &[u8]) -> u64 {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let mut value = i128::from(u64::from_le_bytes(word));
        if signed && bytes[bytes.len() - 1] & 0x80 != 0 {
            value -= 1 << (8 * bytes.len());
        }
        let bits = if self.wide { 64 } else { 32 };
        value.rem_euclid(1 << bits) as u64
    }
}

/// A memory's size: at first, at most, and when the access is made, in pages.
#[derive(Clone, Copy, Debug)]
struct Pages {
    initial: u32,
    most: u32,
    now: u32,
}

const MEMORIES: [Pages; 5] = [
    pages(1, 1, 1),
    pages(1, 3, 1),
    pages(1, 3, 2),
    pages(0, 1, 0),
    pages(0, 0, 0),
];

const fn pages(initial: u32, most: u32, now: u32) -> Pages {
    Pages { initial, most, now }
}

/// Immediates: small ones, those around what an instruction's offset field
/// reaches, around a page, and those that make the sum pass 2^32.
const OFFSETS: [u32; 18] = [
    0,
    1,
    7,
    8,
    100,
    0x7ff7,
    0x7ffe,
    0x7fff,
    0x8000,
    0xfff8,
    0xffff,
    0x1_0000,
    0x2_0001,
    0x7fff_fff8,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff8,
    0xffff_ffff,
];

/// Where the operands come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Just loaded.
    Fresh,
    /// Locals that are needed again, with so many others that every register is
    /// taken.
    Locals,
    /// The address is this constant.
    Address(u32),
    /// The value is this constant.
    Value(u64),
}

/// Takes address and value from a message and puts what it loads there.
fn program(access: &Access, offset: u32, pages: Pages, from: From) -> String {
    let ty = if access.wide { "i64" } else { "i32" };
    let fresh = (
        "(call $load32 (i32.const 0))".to_owned(),
        format!("(call $load_{ty} (i32.const 8))"),
    );
    let (address, value) = match from {
        From::Fresh => fresh,
        From::Locals => ("(local.get $address)".into(), "(local.get $value)".into()),
        From::Address(address) => (format!("(i32.const {})", address as i32), fresh.1),
        From::Value(value) if access.wide => (fresh.0, format!("(i64.const {})", value as i64)),
        From::Value(value) => (fresh.0, format!("(i32.const {})", value as i32)),
    };
    let extended = |load: String| match ty {
        "i64" => load,
        _ => format!("(i64.extend_i32_u {load})"),
    };
    let done = match access.what {
        What::Store => format!("({} offset={offset} {address} {value})", access.name),
        What::Load { .. } => {
            let load = extended(format!("({} offset={offset} {address})", access.name));
            format!("(call $store64 (i32.const 8) {load})")
        }
    };
    let set = if from == From::Locals {
        format!(
            "(local.set $p (i32.const 11)) (local.set $q (i32.const 222)) (local.set $r (i32.const 3333))
             (local.set $address (call $load32 (i32.const 0)))
             (local.set $value (call $load_{ty} (i32.const 8)))"
        )
    } else {
        String::new()
    };
    format!(
        r#"(module
            (import "ashway" "msg_load32le" (func $load32 (param i32) (result i32)))
            (import "ashway" "msg_load32le" (func $load_i32 (param i32) (result i32)))
            (import "ashway" "msg_load64le" (func $load_i64 (param i32) (result i64)))
            (import "ashway" "msg_store64le" (func $store64 (param i32 i64)))
            (memory (export "memory") {} {})
            (func (export "on_rx") (param i32 i32) (result i32)
                (local $address i32) (local $value {ty}) (local $p i32) (local $q i32) (local $r i32)
                {set} {done}
                (i32.add (i32.add (local.get $address) (local.get $p))
                    (i32.sub (local.get $q) (local.get $r)))))"#,
        pages.initial, pages.most
    )
}

/// Addresses around everything at which something changes.
fn addresses(offset: u32, bytes: u64) -> Vec<u32> {
    let ends = [0, PAGE, 2 * PAGE, 3 * PAGE, 1 << 31, 1 << 32];
    let centres = ends.iter().flat_map(|end| {
        let sum = end.wrapping_sub(bytes);
        [
            *end,
            sum,
            sum.wrapping_sub(offset.into()),
            end.wrapping_sub(offset.into()),
        ]
    });
    let mut addresses: Vec<u32> = centres
        .flat_map(|centre| {
            (0..=18).map(move |step| (centre.wrapping_add(step).wrapping_sub(9)) as u32)
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

const VALUE: u64 = 0x8796_a5b4_c3d2_e1f0;

/// Runs the program on each address and compares.
fn prove(access: &Access, offset: u32, pages: Pages, from: From, how: How, addresses: &[u32]) {
    let mut handler = Handler::new(&program(access, offset, pages, from), how);
    handler.set_pages(pages.now);
    for (at, byte) in handler.guest_mut().iter_mut().enumerate() {
        *byte = (at * 167 + (at >> 8) * 31 + 0x85) as u8;
    }
    let mut model = handler.guest().to_vec();
    let size = u64::from(pages.now) * PAGE;
    for address in addresses {
        let what = format!(
            "{} offset={offset:#x} at {address:#x}, {pages:?}, {from:?}, {how:?}",
            access.name
        );
        let mut message = vec![0; 16];
        message[..4].copy_from_slice(&address.to_le_bytes());
        message[8..].copy_from_slice(&VALUE.to_le_bytes());
        let outcome = handler.run(&message);
        let effective = u64::from(*address) + u64::from(offset);
        if effective + access.bytes > size {
            assert_eq!(outcome.cause(), Some(Cause::MemoryBounds), "{what}");
            assert_eq!(outcome.message, message, "{what}");
            continue;
        }
        let kept = match from {
            From::Locals => address.wrapping_add(11 + 222).wrapping_sub(3333),
            _ => 0,
        };
        assert_eq!(outcome.result, Ok(kept), "{what}");
        let bytes = effective as usize..(effective + access.bytes) as usize;
        if let What::Load { signed } = access.what {
            let loaded = access.loaded(signed, &model[bytes]);
            assert_eq!(outcome.message[8..], loaded.to_le_bytes(), "{what}");
            continue;
        }
        let value = if let From::Value(value) = from {
            value
        } else {
            VALUE
        };
        let stored = &value.to_le_bytes()[..access.bytes as usize];
        model[bytes.clone()].copy_from_slice(stored);
        let near = bytes.start.saturating_sub(16)..(bytes.end + 16).min(model.len());
        assert_eq!(handler.guest()[near.clone()], model[near], "{what}");
    }
    assert!(handler.guest() == model, "{} wrote elsewhere", access.name);
}

fn everywhere(how: How) {
    for access in &ACCESSES {
        for offset in OFFSETS {
            let addresses = addresses(offset, access.bytes);
            for pages in MEMORIES {
                for from in [From::Fresh, From::Locals] {
                    prove(access, offset, pages, from, how, &addresses);
                }
            }
        }
    }
}

#[test]
fn every_access_has_its_bounds_in_an_arena() {
    everywhere(How::REGISTERS);
}

#[test]
fn every_access_has_its_bounds_in_an_array() {
    everywhere(How::ARRAY);
}

#[test]
fn every_access_has_its_bounds_at_a_constant_address() {
    for access in &ACCESSES {
        for offset in [0, 1, 0x7fff, 0x8000, 0xffff_ffff] {
            for pages in MEMORIES {
                let size = u64::from(pages.most) * PAGE;
                let last = size.wrapping_sub(access.bytes + u64::from(offset)) as u32;
                let first = last.wrapping_sub(PAGE as u32);
                for address in [
                    0,
                    1,
                    0x7fff,
                    first,
                    first.wrapping_add(1),
                    last,
                    last.wrapping_add(1),
                    u32::MAX,
                ] {
                    for how in [How::REGISTERS, How::ARRAY] {
                        prove(
                            access,
                            offset,
                            pages,
                            From::Address(address),
                            how,
                            &[address],
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_store_has_its_constant_values() {
    let stores = ACCESSES.iter().filter(|access| access.what == What::Store);
    for access in stores {
        for value in [
            0,
            1,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            1 << 32,
            u64::MAX,
            VALUE,
        ] {
            for how in [How::REGISTERS, How::FRAMES, How::ARRAY] {
                let addresses = addresses(8, access.bytes);
                prove(access, 8, MEMORIES[0], From::Value(value), how, &addresses);
            }
        }
    }
}
