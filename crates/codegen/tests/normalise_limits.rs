//! Each documented limit: a module that reaches it is accepted, one past it is
//! refused, and the limit is named.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_codegen::normalise::{Limits, NormaliseError, Profile, normalise_as};
use std::fmt::Write;

/// A limit, what it is called, and a module that has so many of the thing.
struct Case {
    limit: u64,
    what: &'static str,
    module: fn(u64) -> Vec<u8>,
}

fn text(fields: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {fields})")).unwrap()
}

fn many(field: &str, count: u64) -> Vec<u8> {
    text(&field.repeat(count as usize))
}

/// A module with a custom section that makes it so long.
fn file(bytes: u64) -> Vec<u8> {
    let mut wasm = b"\0asm\x01\0\0\0\0".to_vec();
    // The section's length as a LEB128 number of 4 bytes; an empty name.
    let len = bytes as u32 - 8 - 1 - 4;
    wasm.extend((0..4).map(|i| {
        let seven = (len >> (7 * i)) as u8 & 0x7f;
        if i < 3 { seven | 0x80 } else { seven }
    }));
    wasm.resize(bytes as usize, 0);
    wasm
}

fn cases() -> Vec<Case> {
    let Limits {
        file_bytes,
        memory_pages,
        types,
        type_values,
        functions,
        exports,
        operators,
        nesting,
        locals,
        globals,
        tables,
        table_entries,
        segments,
        state_bytes,
    } = Limits::default();
    let case = |limit: u32, what, module| Case {
        limit: u64::from(limit),
        what,
        module,
    };
    vec![
        case(file_bytes as u32, "bytes of file", file),
        case(memory_pages, "pages of declared memory maximum", |count| {
            text(&format!("(memory {count} {count})"))
        }),
        case(types, "function types", |count| {
            many("(type (func))", count)
        }),
        case(
            type_values,
            "parameters and results of function types",
            |count| {
                // 64 in each, the rest in the last.
                let most = "i64 ".repeat(64);
                let rest = "i64 ".repeat(count as usize % 64);
                let full = format!("(type (func (param {most})))").repeat(count as usize / 64);
                text(&format!("{full} (type (func (result {rest})))"))
            },
        ),
        case(functions, "functions", |count| many("(func)", count)),
        case(functions, "imports", |count| {
            many(
                r#"(import "ashway" "msg_load8" (func (param i32) (result i32)))"#,
                count,
            )
        }),
        case(exports, "exports", |count| {
            let mut fields = String::from("(func $f)");
            for i in 0..count {
                write!(fields, r#"(export "{i}" (func $f))"#).unwrap();
            }
            text(&fields)
        }),
        // The last `end` is one.
        case(operators, "operators", |count| {
            text(&format!("(func {})", "nop ".repeat(count as usize - 1)))
        }),
        case(nesting, "nested blocks", |count| {
            let count = count as usize;
            let (open, close) = ("block ".repeat(count), "end ".repeat(count));
            text(&format!("(func {open} {close})"))
        }),
        case(locals, "locals in a function", |count| {
            text(&format!("(func (local {}))", "i64 ".repeat(count as usize)))
        }),
        case(globals, "globals", |count| {
            many("(global (mut i32) (i32.const 0))", count)
        }),
        case(tables, "tables", |count| many("(table 1 funcref)", count)),
        case(table_entries, "table entries", |count| {
            text(&format!("(table {count} funcref)"))
        }),
        case(table_entries, "table entries", |count| {
            text(&format!(
                "(func $f) (elem func {})",
                "$f ".repeat(count as usize)
            ))
        }),
        case(segments, "data segments", |count| {
            many(r#"(data "")"#, count)
        }),
        case(segments, "element segments", |count| {
            many("(elem func)", count)
        }),
        case(
            state_bytes,
            "bytes of globals, stored tables and passive segments",
            |count| {
                // What stands before the first global.
                let bytes = "a".repeat(count as usize - 64);
                text(&format!(
                    r#"(memory 1 1) (data $d "{bytes}")
                       (func (memory.init $d (i32.const 0) (i32.const 0) (i32.const 0)))"#
                ))
            },
        ),
        case(
            64,
            "types of indirect calls that differ only in kinds of references",
            |count| {
                // Type `i` has funcrefs where `i` has ones.
                let kind = |i: u64, bit: u64| {
                    if i >> bit & 1 == 1 {
                        "funcref "
                    } else {
                        "externref "
                    }
                };
                let mut fields = String::from("(table 1 funcref)");
                for i in 0..count {
                    let params: String = (0..7).map(|bit| kind(i, bit)).collect();
                    let gets = "(local.get 0)(local.get 1)(local.get 2)(local.get 3)
                        (local.get 4)(local.get 5)(local.get 6)";
                    write!(
                        fields,
                        "(type $t{i} (func (param {params})))
                         (func (param {params}) {gets} (call_indirect (type $t{i}) (i32.const 0)))"
                    )
                    .unwrap();
                }
                text(&fields)
            },
        ),
    ]
}

#[test]
fn modules_at_each_limit_are_accepted_and_one_past_it_refused() {
    let limits = Limits::default();
    for Case {
        limit,
        what,
        module,
    } in cases()
    {
        let wasm = module(limit);
        match normalise_as(&wasm, &limits, Profile::Library) {
            Ok(module) => common::check_encoded(&module),
            Err(error) => panic!("{limit} {what}: {error}"),
        }
        let wasm = module(limit + 1);
        let error = normalise_as(&wasm, &limits, Profile::Library).err();
        let expected = NormaliseError::TooLarge {
            what,
            found: limit + 1,
            most: limit,
        };
        assert_eq!(error, Some(expected));
    }
}

/// A section that is at fault says what is wrong with the section, not with the handler.
#[test]
fn lists_of_pipes_that_are_none_say_what_to_do() {
    let refused = |section: &str, import: &str| {
        let wasm = text(&format!(
            "{import} (@custom \"ashway.pipes\" \"{section}\")"
        ));
        let limits = Limits::default();
        let Err(error) = normalise_as(&wasm, &limits, Profile::Library) else {
            panic!("{section}");
        };
        (error.to_string(), error.hint())
    };
    let run = r#"(import "ashway" "pipe_in_place" (func (param i32 i32 i32)))"#;
    for (section, import, message, hint) in [
        (
            "copy\\0a".repeat(17),
            "",
            "17 lists of pipes",
            "two handlers",
        ),
        (
            "copy".to_owned() + &" | copy".repeat(700),
            "",
            "bytes of a list",
            "two lists",
        ),
        (
            "\\ff".to_owned(),
            "",
            "`ashway.pipes` is no text",
            "one on each line",
        ),
        (String::new(), run, "has no list of pipes", "ASHWAY_PIPES"),
    ] {
        let (said, advice) = refused(&section, import);
        assert!(said.contains(message), "{said}");
        assert!(advice.contains(hint), "{advice}");
        assert!(!advice.contains("handler smaller"), "{advice}");
    }
}

#[test]
fn the_quota_of_pages_is_the_nodes() {
    let limits = Limits {
        memory_pages: 3,
        ..Limits::default()
    };
    let pages = |text: &str| {
        let wasm = self::text(text);
        normalise_as(&wasm, &limits, Profile::Library)
            .map(|module| (module.initial_pages, module.maximum_pages))
    };
    assert_eq!(pages("(memory 1)"), Ok((1, 3)));
    assert_eq!(pages("(memory 1 2)"), Ok((1, 2)));
    assert_eq!(pages("(memory 3 65536)"), Ok((3, 3)));
    assert_eq!(pages(""), Ok((0, 0)));
    assert!(matches!(
        pages("(memory 4)"),
        Err(NormaliseError::TooLarge {
            found: 4,
            most: 3,
            ..
        })
    ));
}
