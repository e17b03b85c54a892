//! What is wrong with a graph, with its place in the text.
//!
//! All problems of a graph are found before any is shown: a configuration is
//! repaired in one round, not in as many as it has mistakes. The shell adds the
//! file's name and shows the lines.

use std::fmt;
use std::ops::Range;

/// One mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// A stable name for programs, e.g. `unknown_key`.
    pub code: &'static str,
    /// What is wrong, in one line.
    pub message: String,
    /// The bytes at fault; `None` if the text as a whole is, or if there is none.
    pub span: Option<Range<usize>>,
    /// What stands below the caret.
    pub label: Option<String>,
    /// A second place that has a part in it.
    pub also: Option<(Range<usize>, String)>,
    /// The next step.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem at `span`, with the next step.
    pub(crate) fn at(
        code: &'static str,
        span: Option<Range<usize>>,
        message: String,
        hint: impl Into<Option<String>>,
    ) -> Self {
        Self {
            code,
            message,
            span,
            hint: hint.into(),
            ..Self::default()
        }
    }
}

/// The message, without place and hint.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// "did you mean" if one of the words is near, and the list in any case.
#[must_use]
pub fn suggest<W: AsRef<str>>(word: &str, words: &[W]) -> String {
    let near = words
        .iter()
        .map(AsRef::as_ref)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3))
        .min();
    match (near, words) {
        (_, []) => "there is none yet".to_owned(),
        (Some((_, near)), _) => format!("did you mean `{near}`? available: {}", list(words)),
        (None, _) => format!("available: {}", list(words)),
    }
}

/// How far apart two words are, in capitals or not.
fn distance(one: &str, other: &str) -> usize {
    strsim::osa_distance(&one.to_lowercase(), &other.to_lowercase())
}

/// Most words that are listed one by one.
const LISTED: usize = 20;

/// The words in backquotes, separated by commas.
pub(crate) fn list<W: AsRef<str>>(words: &[W]) -> String {
    let mut list: Vec<_> = words
        .iter()
        .take(LISTED)
        .map(|word| format!("`{}`", word.as_ref()))
        .collect();
    if words.len() > LISTED {
        list.push(format!("and {} more", words.len() - LISTED));
    }
    list.join(", ")
}

/// "a table", "an integer": the names of TOML's types with their article.
pub(crate) fn article(type_name: &str) -> String {
    let vowel = type_name.starts_with(['a', 'i']);
    format!("{} {type_name}", if vowel { "an" } else { "a" })
}

#[cfg(test)]
mod tests {
    use super::suggest;

    #[test]
    fn near_words_are_asked_for_and_far_ones_listed() {
        let words = ["udp", "ip", "ip6"];
        assert_eq!(
            suggest("upd", &words),
            "did you mean `udp`? available: `udp`, `ip`, `ip6`"
        );
        assert!(suggest("IP6", &words).starts_with("did you mean `ip6`?"));
        assert_eq!(suggest("ethernet", &words), "available: `udp`, `ip`, `ip6`");
        assert_eq!(suggest("udp", &[""; 0]), "there is none yet");
        assert!(suggest("udp", &["x"; 22]).ends_with("`x`, and 2 more"));
    }
}
