//! Patterns over names of interfaces: `*`, `?` and `[...]`, as in a shell (POSIX.1-2024, XCU
//! 2.14.1).
//!
//! Own code, as a name has at most 15 bytes and nothing of what crates for this are about
//! (paths, `**`, sets of patterns) is of use here. A name is matched as bytes; nothing is quoted,
//! as no name of an interface needs it.

use std::cmp::Reverse;

/// A pattern that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// This byte.
    One(u8),
    /// Any one byte.
    Any,
    /// Any bytes, none too.
    Many,
    /// One byte in these ranges, or in none of them.
    Set { ranges: Vec<(u8, u8)>, not: bool },
}

impl Glob {
    /// Whether this is a pattern and not a name.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.contains(['*', '?', '['])
    }

    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        let mut parts = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            rest = after;
            parts.push(match first {
                // More of them mean the same, and would cost time.
                b'*' if parts.last() == Some(&Part::Many) => continue,
                b'*' => Part::Many,
                b'?' => Part::Any,
                b'[' => {
                    let (set, after) = set(rest)?;
                    rest = after;
                    set
                }
                one => Part::One(*one),
            });
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// Whether it matches what another does, by what is written.
    #[must_use]
    pub fn means(&self, other: &Self) -> bool {
        self.parts == other.parts
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a name matches. At most as many steps as the product of both lengths: of `*`,
    /// only the last has to be tried again.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name = name.as_bytes();
        let (mut part, mut at) = (0, 0);
        let mut again = None;
        loop {
            match self.parts.get(part) {
                Some(Part::Many) => {
                    part += 1;
                    again = Some((part, at));
                    continue;
                }
                Some(one) if name.get(at).is_some_and(|byte| one.takes(*byte)) => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                None if at == name.len() => return true,
                _ => {}
            }
            // The last `*` takes one more.
            match again {
                Some((behind, from)) if from < name.len() => {
                    again = Some((behind, from + 1));
                    (part, at) = (behind, from + 1);
                }
                _ => return false,
            }
        }
    }

    /// Of several that match a name, the one with the least of these is meant: that with the
    /// longest literal text, then the first by its text.
    #[must_use]
    pub fn rank(&self) -> (Reverse<usize>, &str) {
        let literal = self
            .parts
            .iter()
            .filter(|part| matches!(part, Part::One(_)));
        (Reverse(literal.count()), &self.text)
    }
}

impl Part {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::One(one) => *one == byte,
            Self::Any => true,
            Self::Many => false,
            Self::Set { ranges, not } => {
                let mut ranges = ranges.iter();
                ranges.any(|(first, last)| (*first..=*last).contains(&byte)) != *not
            }
        }
    }
}

/// The set behind a `[`, and what follows its `]`. A `]` that comes first is one of the set.
fn set(mut rest: &[u8]) -> Result<(Part, &[u8]), &'static str> {
    const OPEN: &str = "a `[` has no `]`";
    let not = matches!(rest, [b'!' | b'^', ..]);
    if not {
        rest = &rest[1..];
    }
    let mut ranges = Vec::new();
    loop {
        match rest {
            [b']', after @ ..] if !ranges.is_empty() => {
                return Ok((Part::Set { ranges, not }, after));
            }
            [first, b'-', last, after @ ..] if *last != b']' => {
                if first > last {
                    return Err("a range in `[...]` ends before it begins");
                }
                ranges.push((*first, *last));
                rest = after;
            }
            [one, after @ ..] => {
                ranges.push((*one, *one));
                rest = after;
            }
            [] => return Err(OPEN),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_a_shell() {
        for (glob, yes, no) in [
            (
                "veth*",
                &["veth", "veth0", "vethab12"][..],
                &["vet", "xveth0", "Veth0"][..],
            ),
            ("*", &["", "lo", "a.b"], &[]),
            ("e?h0", &["eth0", "esh0"], &["eh0", "ethh0"]),
            (
                "*eth*0",
                &["eth0", "veth10", "ethx0eth0"],
                &["eth1", "vet0"],
            ),
            (
                "eth[0-35]",
                &["eth0", "eth3", "eth5"],
                &["eth4", "eth", "eth01"],
            ),
            ("eth[!0-3]", &["eth4", "ethx"], &["eth0", "eth"]),
            ("eth[^0]", &["eth1"], &["eth0"]),
            ("a[]-]b", &["a]b", "a-b"], &["axb", "ab"]),
            ("a[x-]", &["ax", "a-"], &["ay"]),
            ("a**b", &["ab", "axxb"], &["a", "abx"]),
            ("*a*a*a*a*b", &["aaaab"], &["aaaaaaaaaaaaaaa"]),
            ("lo", &["lo"], &["lo0", "l"]),
        ] {
            let read = Glob::read(glob).unwrap();
            for name in yes {
                assert!(read.matches(name), "{glob} {name}");
            }
            for name in no {
                assert!(!read.matches(name), "{glob} {name}");
            }
        }
    }

    /// Against a definition that tries everything.
    #[test]
    fn all_short_patterns_mean_what_the_definition_says() {
        fn defined(glob: &[u8], name: &[u8]) -> bool {
            match (glob, name) {
                ([], []) => true,
                ([b'*', rest @ ..], _) => {
                    defined(rest, name) || !name.is_empty() && defined(glob, &name[1..])
                }
                ([b'?', rest @ ..], [_, after @ ..]) => defined(rest, after),
                ([one, rest @ ..], [first, after @ ..]) => one == first && defined(rest, after),
                _ => false,
            }
        }
        let words = |letters: &[u8], most: u32| -> Vec<Vec<u8>> {
            let n = letters.len();
            let all = (0..=most).flat_map(|len| (0..n.pow(len)).map(move |number| (len, number)));
            let word = |(len, mut number): (u32, usize)| {
                let letter = |_| {
                    let letter = letters[number % n];
                    number /= n;
                    letter
                };
                (0..len).map(letter).collect()
            };
            all.map(word).collect()
        };
        for glob in words(b"ab*?", 5) {
            let text = String::from_utf8(glob.clone()).unwrap();
            let read = Glob::read(&text).unwrap();
            for name in words(b"ab", 5) {
                let is = read.matches(std::str::from_utf8(&name).unwrap());
                assert_eq!(is, defined(&glob, &name), "{text} {name:?}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (text, why) in [
            ("a[", "a `[` has no `]`"),
            ("a[]", "a `[` has no `]`"),
            ("a[!]", "a `[` has no `]`"),
            ("a[3-1]", "a range in `[...]` ends before it begins"),
        ] {
            assert_eq!(Glob::read(text).unwrap_err(), why, "{text}");
        }
    }

    #[test]
    fn the_longer_literal_comes_first() {
        let mut all =
            ["v*", "veth[0-9]*", "veth*", "?eth*", "*"].map(|text| Glob::read(text).unwrap());
        all.sort_by(|one, other| one.rank().cmp(&other.rank()));
        let all = all.each_ref().map(Glob::text);
        assert_eq!(all, ["veth*", "veth[0-9]*", "?eth*", "v*", "*"]);
    }
}
