//! Keeps `sdk/c/ashway.h` in line with the crate `ashway-abi`.
//!
//! The header is written by hand, because its comments are what handler authors
//! read; these tests compare every number and signature in it.

use ashway_abi::host_call::{MODULE, ValueType};
use ashway_abi::{HostCall, PIPES_SECTION, VERSION, VERSION_SECTION, Verdict};

fn header() -> String {
    std::fs::read_to_string(crate::root().join("sdk/c/ashway.h"))
        .expect("the header is in the tree")
}

/// The Wasm type clang makes of a parameter declared so.
fn value_type(parameter: &str) -> ValueType {
    let words: Vec<&str> = parameter.split_whitespace().collect();
    match words.as_slice() {
        ["unsigned", "long", "long", _] => ValueType::I64,
        ["unsigned" | "int", _] => ValueType::I32,
        ["void", pointer] | ["const", "void", pointer] if pointer.starts_with('*') => {
            ValueType::I32
        }
        _ => panic!("`{parameter}` is a parameter of unknown type"),
    }
}

#[test]
fn every_host_call_has_its_signature() {
    let header = header();
    let mut declared = 0;
    for call in HostCall::ALL {
        let name = call.name();
        let start = format!("ASHWAY_IMPORT(\"{name}\") ");
        let line = header
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .unwrap_or_else(|| panic!("`{name}` is not declared"));
        // `log` alone is a function of the C library.
        let own = format!("ashway_{name}");
        let declared_as = if line.contains(&own) { &own } else { name };
        let (result, rest) = line
            .split_once(declared_as)
            .expect("the name follows the type");
        let parameters = rest
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(");"))
            .expect("a declaration on one line");
        let parameters = parameters.split(", ").filter(|one| *one != "void");
        let parameters: Vec<ValueType> = parameters.map(value_type).collect();
        let result = match result.trim() {
            "void" => None,
            "unsigned" => Some(ValueType::I32),
            "unsigned long long" => Some(ValueType::I64),
            other => panic!("`{name}` returns `{other}`"),
        };
        assert_eq!((parameters.as_slice(), result), call.signature(), "{name}");
        declared += 1;
    }
    let imports = header.lines().filter(|l| l.starts_with("ASHWAY_IMPORT("));
    assert_eq!(imports.count(), declared, "a call the ABI does not have");
    assert!(header.contains(&format!("import_module(\"{MODULE}\")")));
}

#[test]
fn every_verdict_has_its_number() {
    let header = header();
    for verdict in Verdict::ALL {
        let name = verdict.name().to_uppercase();
        let line = format!("    ASHWAY_{name} = {},", verdict as u32);
        assert!(header.contains(&line), "no line `{line}`");
    }
}

#[test]
fn every_answer_of_send_has_its_number() {
    use ashway_abi::outbox::answer;
    let header = header();
    for (name, number) in [
        ("SENT", answer::QUEUED),
        ("NO_CHANNEL", answer::NO_CHANNEL),
        ("SENT_ENOUGH", answer::FULL),
        ("TOO_LONG", answer::TOO_LONG),
    ] {
        let line = format!("    ASHWAY_{name} = {number},");
        assert!(header.contains(&line), "no line `{line}`");
    }
}

#[test]
fn every_answer_of_msg_resize_has_its_number() {
    use ashway_abi::resize;
    let header = header();
    for (name, number) in [("RESIZED", resize::DONE), ("NO_ROOM", resize::NO_ROOM)] {
        let line = format!("    ASHWAY_{name} = {number},");
        assert!(header.contains(&line), "no line `{line}`");
    }
    assert!(header.contains(&format!("at most {} (without it, 0)", resize::MOST)));
    let section = ashway_abi::GROWS_SECTION;
    assert!(header.contains(&format!(".custom_section.{section},")));
}

#[test]
fn the_bounds_of_log_are_said() {
    use ashway_abi::log;
    assert_eq!((log::LINE_BYTES, log::MOST), (104, 4));
    assert!(
        header().contains("its first 104\n * bytes, and of an activation the first four lines")
    );
}

#[test]
fn the_version_is_in_the_section() {
    let header = header();
    assert!(header.contains(&format!("#define ASHWAY_ABI_VERSION {VERSION}\n")));
    assert!(header.contains(&format!(".custom_section.{VERSION_SECTION},")));
    assert!(header.contains(&format!(".int32 {VERSION}\\n")));
    assert!(header.contains(&format!(".custom_section.{PIPES_SECTION},")));
}
