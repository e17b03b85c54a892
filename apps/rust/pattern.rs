//! Compiles the pattern that `regex.rs` looks for: lines of a web server's log about a client's
//! errors, in words that all of them write. To the two files that are named.

use regex_automata::RegexBuilder;

const PATTERN: &str = r#"[0-9]{1,3}(\.[0-9]{1,3}){3} - - \[[^\]\n]*\] "(GET|HEAD|POST|PUT) /[^ "\n]* HTTP/1\.[01]" 4[0-9][0-9] "#;

fn main() {
    let regex = RegexBuilder::new()
        .unicode(false)
        .allow_invalid_utf8(true)
        .minimize(true)
        .build_with_size::<u16>(PATTERN)
        .expect("it is a pattern");
    let files = std::env::args().skip(1);
    for (dfa, file) in [regex.forward(), regex.reverse()].iter().zip(files) {
        let bytes = dfa.to_bytes_little_endian().expect("it has 16-bit words");
        std::fs::write(&file, bytes).unwrap_or_else(|error| panic!("`{}`: {}", file, error));
    }
}
