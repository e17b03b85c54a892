//! Operators on tables: what they do, where they stop, and that a stop leaves
//! nothing half done.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::Cause;
use common::Library;

const NULL: u64 = 0;

#[test]
fn a_table_grows_up_to_its_maximum() {
    let mut library = Library::new(
        r#"(table $t 3 10 funcref) (elem declare func $a)
           (func $a (result i32) (i32.const 42))
           (type $number (func (result i32)))
           (func (export "size") (result i32) (table.size $t))
           (func (export "grow") (param i32) (result i32)
              (table.grow $t (ref.func $a) (local.get 0)))
           (func (export "null") (param i32) (result i32)
              (ref.is_null (table.get $t (local.get 0))))
           (func (export "put") (param i32) (table.set $t (local.get 0) (ref.func $a)))
           (func (export "call") (param i32) (result i32)
              (call_indirect $t (type $number) (local.get 0)))"#,
    );
    let failed = u32::MAX;
    assert_eq!(library.number("size", &[]), Ok(3));
    for (more, before, after) in [
        (0, 3, 3),
        (4, 3, 7),
        (4, failed, 7),
        (u64::from(u32::MAX), failed, 7),
        (u64::from(u32::MAX) - 6, failed, 7),
        (3, 7, 10),
        (0, 10, 10),
        (1, failed, 10),
    ] {
        assert_eq!(library.number("grow", &[more]), Ok(before), "{more}");
        assert_eq!(library.number("size", &[]), Ok(after), "{more}");
    }
    assert_eq!(library.number("null", &[2]), Ok(1));
    assert_eq!(library.number("null", &[3]), Ok(0));
    assert_eq!(library.number("call", &[9]), Ok(42));
    library.call("put", &[0]).unwrap();
    assert_eq!(library.number("call", &[0]), Ok(42));
    library.stops("call", &[1], Cause::IndirectCall, "CallIndirect");
    for beyond in [10, 11, 1 << 31, u64::from(u32::MAX)] {
        library.stops("call", &[beyond], Cause::IndirectCall, "CallIndirect");
        library.stops("null", &[beyond], Cause::TableBounds, "TableGet");
        library.stops("put", &[beyond], Cause::TableBounds, "TableSet");
    }
}

#[test]
fn a_table_without_a_maximum_grows_up_to_the_quota() {
    let mut library = Library::new(
        r#"(table $t 0 externref)
           (func (export "grow") (param i32) (result i32)
              (table.grow $t (ref.null extern) (local.get 0)))"#,
    );
    assert_eq!(library.number("grow", &[10_001]), Ok(u32::MAX));
    assert_eq!(library.number("grow", &[10_000]), Ok(0));
    assert_eq!(library.number("grow", &[1]), Ok(u32::MAX));
}

#[test]
fn before_it_has_grown_its_room_is_out_of_bounds() {
    let mut library = Library::new(
        r#"(table $t 2 8 externref)
           (func (export "grow") (drop (table.grow $t (ref.null extern) (i32.const 1))))
           (func (export "get") (param i32) (result externref) (table.get $t (local.get 0)))
           (func (export "fill") (param i32 externref i32)
              (table.fill $t (local.get 0) (local.get 1) (local.get 2)))"#,
    );
    assert_eq!(library.number("get", &[1]), Ok(0));
    library.stops("get", &[2], Cause::TableBounds, "TableGet");
    library.stops("fill", &[0, 7, 3], Cause::TableBounds, "TableFill");
    assert_eq!(library.number("get", &[0]), Ok(0));
    library.call("grow", &[]).unwrap();
    assert_eq!(library.number("get", &[2]), Ok(0));
    library.call("fill", &[0, 7, 3]).unwrap();
    assert_eq!(library.number("get", &[2]), Ok(7));
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Two tables and a segment, as the specification has them.
struct Model {
    tables: [Vec<u64>; 2],
    segment: Vec<u64>,
}

/// The range, if it is in bounds.
fn range(items: &[u64], start: u64, count: u64) -> Option<std::ops::Range<usize>> {
    (start + count <= items.len() as u64).then_some(start as usize..(start + count) as usize)
}

impl Model {
    fn fill(&mut self, table: usize, at: u64, value: u64, count: u64) -> Option<()> {
        let range = range(&self.tables[table], at, count)?;
        self.tables[table][range].fill(value);
        Some(())
    }

    fn copy(&mut self, to: usize, from: usize, at: [u64; 2], count: u64) -> Option<()> {
        let source = range(&self.tables[from], at[1], count)?;
        let source = self.tables[from][source].to_vec();
        let range = range(&self.tables[to], at[0], count)?;
        self.tables[to][range].copy_from_slice(&source);
        Some(())
    }

    fn init(&mut self, at: [u64; 2], count: u64) -> Option<()> {
        let source = range(&self.segment, at[1], count)?;
        let range = range(&self.tables[0], at[0], count)?;
        self.tables[0][range].copy_from_slice(&self.segment[source]);
        Some(())
    }
}

#[test]
fn ranges_are_filled_copied_and_initialised_as_in_the_specification() {
    let mut library = Library::new(
        r#"(table $t 12 funcref) (table $u 7 9 funcref)
           (elem $e func $f0 $f1 $f2 $f3 $f1)
           (func $f0) (func $f1) (func $f2) (func $f3)
           (func (export "get0") (param i32) (result funcref) (table.get $t (local.get 0)))
           (func (export "get1") (param i32) (result funcref) (table.get $u (local.get 0)))
           (func (export "fill0") (param i32 funcref i32)
              (table.fill $t (local.get 0) (local.get 1) (local.get 2)))
           (func (export "fill1") (param i32 funcref i32)
              (table.fill $u (local.get 0) (local.get 1) (local.get 2)))
           (func (export "copy00") (param i32 i32 i32)
              (table.copy $t $t (local.get 0) (local.get 1) (local.get 2)))
           (func (export "copy01") (param i32 i32 i32)
              (table.copy $t $u (local.get 0) (local.get 1) (local.get 2)))
           (func (export "copy10") (param i32 i32 i32)
              (table.copy $u $t (local.get 0) (local.get 1) (local.get 2)))
           (func (export "copy11") (param i32 i32 i32)
              (table.copy $u $u (local.get 0) (local.get 1) (local.get 2)))
           (func (export "init") (param i32 i32 i32)
              (table.init $t $e (local.get 0) (local.get 1) (local.get 2)))
           (func (export "grow") (drop (table.grow $u (ref.null func) (i32.const 1))))
           (func (export "drop") (elem.drop $e))"#,
    );
    let mut model = Model {
        tables: [vec![NULL; 12], vec![NULL; 7]],
        segment: vec![1, 2, 3, 4, 2],
    };
    let mut random = Random(0x7ab1e);
    let (mut done, mut stopped) = (0, 0);
    for round in 0..3_000 {
        match round {
            1_000 => {
                library.call("grow", &[]).unwrap();
                model.tables[1].push(NULL);
            }
            2_000 => {
                library.call("drop", &[]).unwrap();
                model.segment.clear();
            }
            _ => {}
        }
        let (to, from) = (random.below(2) as usize, random.below(2) as usize);
        let at = [random.below(14), random.below(14)];
        // Sometimes so many that the end wraps.
        let count = match random.below(20) {
            0 => u64::from(u32::MAX) - random.below(4),
            _ => random.below(9),
        };
        let (expected, found, cause) = match random.below(3) {
            0 => (
                model.fill(to, at[0], at[1] % 5, count),
                library.call(&format!("fill{to}"), &[at[0], at[1] % 5, count]),
                Cause::TableBounds,
            ),
            1 => (
                model.copy(to, from, at, count),
                library.call(&format!("copy{to}{from}"), &[at[0], at[1], count]),
                Cause::TableBounds,
            ),
            _ => (
                model.init(at, count),
                library.call("init", &[at[0], at[1], count]),
                Cause::TableBounds,
            ),
        };
        match (expected, found) {
            (Some(()), Ok(_)) => done += 1,
            (None, Err(found)) if found.cause == cause => stopped += 1,
            (expected, found) => panic!("round {round}: {expected:?} {found:?} {at:?} {count}"),
        }
        for (number, table) in model.tables.iter().enumerate() {
            for (index, entry) in table.iter().enumerate() {
                let found = library.number(&format!("get{number}"), &[index as u64]);
                assert_eq!(
                    found.map(u64::from),
                    Ok(*entry),
                    "round {round} {number} {index}"
                );
            }
        }
    }
    assert!(done > 500 && stopped > 500, "{done} {stopped}");
}

#[test]
fn segments_that_are_active_or_declared_are_dropped_from_the_start() {
    let mut library = Library::new(
        r#"(table $t 4 funcref) (func $f)
           (elem $active (table $t) (i32.const 1) func $f) (elem $declared declare func $f)
           (func (export "get") (param i32) (result funcref) (table.get $t (local.get 0)))
           (func (export "active") (param i32 i32 i32)
              (table.init $t $active (local.get 0) (local.get 1) (local.get 2)))
           (func (export "declared") (param i32 i32 i32)
              (elem.drop $declared)
              (table.init $t $declared (local.get 0) (local.get 1) (local.get 2)))"#,
    );
    for index in 0..4 {
        let expected = u32::from(index == 1);
        assert_eq!(library.number("get", &[index]), Ok(expected));
    }
    for name in ["active", "declared"] {
        library.call(name, &[0, 0, 0]).unwrap();
        library.call(name, &[4, 0, 0]).unwrap();
        for args in [[0, 0, 1], [0, 1, 0], [5, 0, 0]] {
            let stopped = library.call(name, &args).unwrap_err();
            assert_eq!(stopped.cause, Cause::TableBounds, "{name} {args:?}");
        }
    }
}

#[test]
fn references_travel_as_numbers() {
    let mut library = Library::new(
        r#"(table $t 2 externref) (func $f (export "f")) (elem declare func $f)
           (global $kept (mut externref) (ref.null extern))
           (global $constant funcref (ref.func $f))
           (func (export "keep") (param externref) (global.set $kept (local.get 0)))
           (func (export "kept") (result externref) (global.get $kept))
           (func (export "constant") (result funcref) (global.get $constant))
           (func (export "null") (param externref) (result i32) (ref.is_null (local.get 0)))
           (func (export "either") (param externref externref i32) (result externref)
              (select (result externref) (local.get 0) (local.get 1) (local.get 2)))
           (func (export "through") (param externref) (result externref) (local externref)
              (local.set 1 (local.get 0))
              (block (result externref) (loop (result externref) (local.get 1))))
           (func (export "twice") (param externref) (result externref funcref)
              (local.get 0) (ref.func $f))"#,
    );
    assert_eq!(library.number("kept", &[]), Ok(0));
    library.call("keep", &[7]).unwrap();
    assert_eq!(library.number("kept", &[]), Ok(7));
    assert_eq!(library.number("constant", &[]), Ok(1));
    assert_eq!(library.number("null", &[0]), Ok(1));
    assert_eq!(library.number("null", &[9]), Ok(0));
    assert_eq!(library.number("either", &[5, 6, 1]), Ok(5));
    assert_eq!(library.number("either", &[5, 6, 0]), Ok(6));
    assert_eq!(library.number("through", &[3]), Ok(3));
    assert_eq!(library.call("twice", &[8]), Ok(vec![8, 1]));
}

/// Three types that are one behind normalisation.
const ALIKE: &str = r#"
    (type $f (func (param funcref) (result i32)))
    (type $e (func (param externref) (result i32)))
    (type $i (func (param i32) (result i32)))
    (type $e2 (func (param externref) (result i32)))
    (func $of_f (type $f) (i32.const 10))
    (func $of_e (type $e) (i32.const 20))
    (func $of_i (type $i) (i32.const 30))
    (table $t 4 funcref) (elem (table $t) (i32.const 0) func $of_f $of_e $of_i)
    (func (export "f") (param i32) (result i32)
       (call_indirect $t (type $f) (ref.null func) (local.get 0)))
    (func (export "e") (param i32) (result i32)
       (call_indirect $t (type $e2) (ref.null extern) (local.get 0)))
    (func (export "i") (param i32) (result i32)
       (call_indirect $t (type $i) (i32.const 1) (local.get 0)))"#;

#[test]
fn types_that_differ_only_in_kinds_of_references_stay_apart() {
    let stored =
        format!(r#"{ALIKE} (func (export "store") (table.set $t (i32.const 3) (ref.null func)))"#);
    for fields in [ALIKE, &stored] {
        let mut library = Library::new(fields);
        for (name, right, result) in [("f", 0, 10), ("e", 1, 20), ("i", 2, 30)] {
            for index in 0..5 {
                let found = library.number(name, &[index]);
                if index == right {
                    assert_eq!(found, Ok(result));
                } else {
                    let cause = found.map_err(|stopped| stopped.cause);
                    assert_eq!(cause, Err(Cause::IndirectCall), "{name} {index}");
                }
            }
        }
    }
}

#[test]
fn a_forged_number_calls_nothing_but_what_references_can_mean() {
    let mut library = Library::new(
        r#"(type $t (func (result i32))) (table $t 1 funcref) (elem declare func $meant)
           (func $hidden (result i32) (i32.const 13))
           (func $meant (result i32) (drop (call $hidden)) (i32.const 14))
           (func $other (param i32)) (elem declare func $other)
           (func (export "call") (param funcref) (result i32)
              (table.set $t (i32.const 0) (local.get 0))
              (drop (ref.func $meant)) (drop (ref.func $other))
              (call_indirect $t (type $t) (i32.const 0)))"#,
    );
    assert_eq!(library.number("call", &[2]), Ok(14));
    for forged in [0, 1, 3, 4, 5, 1_000_000, u64::from(u32::MAX)] {
        library.stops("call", &[forged], Cause::IndirectCall, "CallIndirect");
    }
}

/// The application can write the state region, sizes included.
#[test]
fn falsified_sizes_reach_nothing_else() {
    let fields = r#"(memory 1 1) (data $d "abcd")
           (table $t 2 4 externref)
           (func (export "grow") (param i32) (result i32)
              (table.grow $t (ref.null extern) (local.get 0)))
           (func (export "get") (param i32) (result externref) (table.get $t (local.get 0)))
           (func (export "set") (param i32 externref)
              (table.set $t (local.get 0) (local.get 1)))
           (func (export "init") (param i32 i32 i32)
              (memory.init $d (local.get 0) (local.get 1) (local.get 2)))
           (func (export "drop") (data.drop $d))"#;
    let mut library = Library::new(fields);
    let state = library.layout.state_offset();
    for word in (0..64).map(|word| state + 64 + word * 4) {
        library.pages.write(word, &u32::MAX.to_le_bytes());
    }
    assert_eq!(library.number("grow", &[1]), Ok(u32::MAX));
    library.call("set", &[3, 5]).unwrap();
    assert_eq!(library.number("get", &[3]), Ok(5));
    library.stops("get", &[4], Cause::TableBounds, "TableGet");
    library.stops("set", &[4, 1], Cause::TableBounds, "TableSet");
    library.call("init", &[0, 0, 4]).unwrap();
    library.stops("init", &[0, 0, 5], Cause::MemoryBounds, "MemoryInit");
}

#[test]
fn a_range_pays_entry_by_entry() {
    let mut library = Library::new(
        r#"(table $t 1000 externref)
           (func (export "fill") (param i32)
              (table.fill $t (i32.const 0) (ref.null extern) (local.get 0)))"#,
    );
    let needed = |library: &mut Library, count| {
        (0..100_000_u64)
            .step_by(5)
            .find(|fuel| library.call_with("fill", &[count], *fuel).is_ok())
            .unwrap()
    };
    let (few, many) = (needed(&mut library, 10), needed(&mut library, 1_000));
    assert!(many > few * 50, "{few} {many}");
    let stopped = library.call_with("fill", &[1_000], many - 10).unwrap_err();
    assert_eq!(stopped.cause, Cause::Fuel);
}
