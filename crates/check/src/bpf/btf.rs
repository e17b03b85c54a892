//! BTF by hand: just enough for the kernel to know a program's source lines.
//!
//! With it the verifier's log and the kernel's own traces name the author's
//! file and line. One function of type `int name(void *ctx)`, and as many of the same type as
//! there are subprograms; nothing else has a type, so nothing else is described.
//!
//! Source: Linux 6.12 `Documentation/bpf/btf.rst` and `include/uapi/linux/
//! btf.h`; the rules for line records are `check_btf_line` in
//! `kernel/bpf/verifier.c`.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER_BYTES: u32 = 24;

const KIND_INT: u32 = 1 << 24;
const KIND_PTR: u32 = 2 << 24;
/// The low bits hold the linkage; 0 is static.
const KIND_FUNC: u32 = 12 << 24;
/// The low bits hold the number of parameters.
const KIND_FUNC_PROTO: u32 = 13 << 24;
/// A signed `int` of 32 bits.
const INT_ENCODING: u32 = 1 << 24 | 32;

const VOID_ID: u32 = 0;
const INT_ID: u32 = 1;
const PTR_ID: u32 = 2;
const PROTO_ID: u32 = 3;
const FUNC_ID: u32 = 4;

/// Most a line number can be (`BPF_LINE_INFO_LINE_NUM` has 22 bits).
const MAX_LINE: u32 = (1 << 22) - 1;

/// A source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Index of the first instruction that comes from it.
    pub insn: u32,
    /// The file, as DWARF names it.
    pub file: String,
    /// The line, from 1; 0 for trusted code.
    pub number: u32,
}

/// What `BPF_BTF_LOAD` and `BPF_PROG_LOAD` want, all little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Btf {
    /// The BTF itself.
    pub bytes: Vec<u8>,
    /// A `struct bpf_func_info` for each function: 8 bytes.
    pub func_info: Vec<u8>,
    /// `struct bpf_line_info` records, [`Btf::LINE_INFO_BYTES`] each; empty
    /// when no lines are known.
    pub line_info: Vec<u8>,
}

impl Btf {
    /// Size of a record of [`Btf::func_info`].
    pub const FUNC_INFO_BYTES: u32 = 8;

    /// Size of a record of [`Btf::line_info`].
    pub const LINE_INFO_BYTES: u32 = 16;

    /// Describes a program of `insn_count` instructions whose `lines` are in
    /// the order of their instructions, as its [subprograms](super::Image::subprograms) are.
    ///
    /// Whatever `lines` holds, the records obey the kernel's rules: one at
    /// instruction 0, positions that rise and lie in the program. Allocates.
    #[must_use]
    pub fn for_program(name: &str, insn_count: u32, lines: &[Line], subprograms: &[u32]) -> Self {
        let mut strings = Strings::new();
        let mut types = types(&mut strings, name);
        let mut func_info = Vec::new();
        words(&mut func_info, &[0, FUNC_ID]);
        for (at, id) in subprograms.iter().zip(FUNC_ID + 1..) {
            let name = strings.add(&identifier(&format!("{name}_{at}")));
            types.extend([name, KIND_FUNC, PROTO_ID]);
            words(&mut func_info, &[*at, id]);
        }

        let mut line_info = Vec::new();
        let mut last = None;
        for line in lines {
            if line.insn >= insn_count || last.is_some_and(|last| line.insn <= last) {
                continue;
            }
            if last.is_none() && line.insn != 0 {
                record(&mut line_info, &mut strings, 0, "ashway", 0);
            }
            last = Some(line.insn);
            record(
                &mut line_info,
                &mut strings,
                line.insn,
                &line.file,
                line.number,
            );
        }

        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&[VERSION, 0]);
        let type_bytes = types.len() as u32 * 4;
        let string_bytes = strings.bytes.len() as u32;
        words(
            &mut bytes,
            &[HEADER_BYTES, 0, type_bytes, type_bytes, string_bytes],
        );
        words(&mut bytes, &types);
        bytes.extend_from_slice(&strings.bytes);

        Self {
            bytes,
            func_info,
            line_info,
        }
    }
}

/// The type section: name, kind, size or type, and what the kind adds.
#[rustfmt::skip]
fn types(strings: &mut Strings, name: &str) -> Vec<u32> {
    let int = strings.add("int");
    let ctx = strings.add("ctx");
    let name = strings.add(&identifier(name));
    vec![
        int, KIND_INT, 4, INT_ENCODING,
        0, KIND_PTR, VOID_ID,
        0, KIND_FUNC_PROTO | 1, INT_ID, ctx, PTR_ID,
        name, KIND_FUNC, PROTO_ID,
    ]
}

/// One `struct bpf_line_info`.
///
/// The log prints `; text @ file:line` with the file's directory cut off, so
/// the text repeats the whole of it: we have no source at hand to quote.
fn record(into: &mut Vec<u8>, strings: &mut Strings, insn: u32, file: &str, number: u32) {
    let text = match number {
        0 => file.to_owned(),
        number => format!("{file}:{number}"),
    };
    let file = strings.add(file);
    let text = strings.add(&text);
    words(into, &[insn, file, text, number.min(MAX_LINE) << 10]);
}

/// `name` as the C identifier that the kernel insists on.
fn identifier(name: &str) -> String {
    let mut valid: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if !valid.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        valid.insert(0, '_');
    }
    // `KSYM_NAME_LEN` is 512 today and was 128.
    valid.truncate(127);
    valid
}

fn words(into: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        into.extend_from_slice(&word.to_le_bytes());
    }
}

/// The string section: each string once, each with a zero behind it.
struct Strings {
    bytes: Vec<u8>,
    known: HashMap<String, u32>,
}

impl Strings {
    /// Offset 0 is the empty string.
    fn new() -> Self {
        Self {
            bytes: vec![0],
            known: HashMap::new(),
        }
    }

    /// Where `text` starts; a zero byte within ends it.
    fn add(&mut self, text: &str) -> u32 {
        let text = text.split('\0').next().unwrap_or_default();
        if text.is_empty() {
            return 0;
        }
        if let Some(&at) = self.known.get(text) {
            return at;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.known.insert(text.to_owned(), at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// The string at `offset` of the string section.
    fn string(btf: &Btf, offset: u32) -> &str {
        let start = (HEADER_BYTES + word(&btf.bytes, 16) + offset) as usize;
        let rest = &btf.bytes[start..];
        let end = rest.iter().position(|&byte| byte == 0).unwrap();
        std::str::from_utf8(&rest[..end]).unwrap()
    }

    /// Instruction, file, text, line of each record.
    fn records(btf: &Btf) -> Vec<(u32, &str, &str, u32)> {
        btf.line_info
            .chunks(Btf::LINE_INFO_BYTES as usize)
            .map(|record| {
                (
                    word(record, 0),
                    string(btf, word(record, 4)),
                    string(btf, word(record, 8)),
                    word(record, 12) >> 10,
                )
            })
            .collect()
    }

    fn line(insn: u32, file: &str, number: u32) -> Line {
        Line {
            insn,
            file: file.to_owned(),
            number,
        }
    }

    #[test]
    fn sections_add_up_and_the_function_is_named() {
        let btf = Btf::for_program("echo-2", 2, &[], &[]);
        assert_eq!(btf.bytes[..4], [0x9f, 0xeb, 1, 0]);
        let [types, strings] = [12, 20].map(|at| word(&btf.bytes, at) as usize);
        assert_eq!(btf.bytes.len(), HEADER_BYTES as usize + types + strings);
        assert_eq!(btf.bytes.last(), Some(&0));
        let func = HEADER_BYTES as usize + types - 12;
        assert_eq!(string(&btf, word(&btf.bytes, func)), "echo_2");
        assert_eq!(btf.func_info, [0, 0, 0, 0, 4, 0, 0, 0]);
        assert!(btf.line_info.is_empty());
    }

    #[test]
    fn subprograms_are_functions_of_the_same_type() {
        let btf = Btf::for_program("echo", 9, &[], &[5]);
        assert_eq!(
            btf.func_info,
            [0, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0]
        );
        let types = word(&btf.bytes, 12) as usize;
        let func = HEADER_BYTES as usize + types - 12;
        assert_eq!(string(&btf, word(&btf.bytes, func)), "echo_5");
    }

    #[test]
    fn lines_become_records_in_rising_order_from_0() {
        let lines = [
            line(2, "src/echo.c", 12),
            line(2, "src/echo.c", 13),
            line(1, "src/echo.c", 14),
            line(3, "ashway", 0),
            line(4, "src/echo.c", u32::MAX),
            line(9, "src/echo.c", 15),
        ];
        let btf = Btf::for_program("echo", 9, &lines, &[]);
        let text = format!("src/echo.c:{}", u32::MAX);
        let expected = [
            (0, "ashway", "ashway", 0),
            (2, "src/echo.c", "src/echo.c:12", 12),
            (3, "ashway", "ashway", 0),
            (4, "src/echo.c", &text, MAX_LINE),
        ];
        assert_eq!(records(&btf), expected);
    }

    #[test]
    fn names_become_identifiers() {
        for (name, expected) in [("a-b.c", "a_b_c"), ("7", "_7"), ("", "_"), ("ä", "_")] {
            assert_eq!(identifier(name), expected);
        }
        assert_eq!(identifier(&"x".repeat(1000)).len(), 127);
    }

    #[test]
    fn strings_are_kept_once_and_end_at_a_zero() {
        let mut strings = Strings::new();
        let first = strings.add("a");
        assert_eq!(strings.add("a\0b"), first);
        assert_eq!(strings.add("\0"), 0);
        assert_eq!(strings.bytes, b"\0a\0");
    }
}
