//! Every refusal has a golden file and a row in `docs/promotion.md`.

use super::{Refusal, files, folder, translate};
use ashway_codegen::promote::{CodePlace, PromoteError};

const DOCUMENT: &str = include_str!("../../../../docs/promotion.md");
const NORMALISE: &str = include_str!("../../src/normalise/error.rs");
const PROMOTE: &str = include_str!("../../src/promote/error.rs");

/// Variants of an error type, by its source.
fn variants(source: &'static str, name: &str) -> Vec<String> {
    let (_, rest) = source.split_once(&format!("pub enum {name} {{")).unwrap();
    let (body, _) = rest.split_once("\n}").unwrap();
    let names = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    let word = |line: &str| line.split([' ', ',', '(']).next().unwrap().to_owned();
    names
        .map(|line| format!("{name}::{}", word(line)))
        .collect()
}

/// What golden files are refused for, and what takes more than a small file.
fn refusals() -> Vec<Refusal> {
    let sources = files(&folder(), &["wat"]);
    let golden = sources.iter().filter_map(|source| translate(source).err());
    let place = CodePlace {
        at: 1,
        line: Some(("FILE".into(), 1)),
    };
    let large = [
        PromoteError::Frames {
            place: place.clone(),
            found: 2,
            most: 1,
        },
        PromoteError::TooLong {
            place: place.clone(),
            most: 1,
        },
        PromoteError::TooSlow {
            place,
            seconds: 3,
            insns: 4,
            grown: 1,
            jumps: 2,
        },
        PromoteError::HandlerType { function: 1 },
    ];
    let large = large.iter().map(|error| Refusal::promote("", "", error));
    golden.chain(large).collect()
}

/// What the first column of the document's tables of refusals says in code.
fn documented() -> Vec<String> {
    let (_, rest) = DOCUMENT.split_once("## What is refused by name").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let mut found = Vec::new();
    for row in rows {
        let mut rest = row.split(" | ").next().unwrap();
        while let Some(start) = rest.find('`') {
            let ticks = rest[start..].chars().take_while(|c| *c == '`').count();
            let fence = "`".repeat(ticks);
            let code = &rest[start + ticks..];
            let end = code.find(&fence).unwrap();
            found.push(code[..end].trim().to_owned());
            rest = &code[end + ticks..];
        }
    }
    found
}

/// Whether a message is one of a pattern's: words in capitals stand for any
/// word, three dots for any number of them.
fn matches(pattern: &[&str], message: &[&str]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return message.is_empty();
    };
    if first.starts_with("...") {
        return (0..=message.len()).any(|skipped| matches(rest, &message[skipped..]));
    }
    let letters = first.trim_matches(|c: char| !c.is_alphanumeric());
    let any = !letters.is_empty() && letters.chars().all(|c| !c.is_lowercase());
    match message.split_first() {
        Some((word, others)) => (any || first == word) && matches(rest, others),
        None => false,
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn every_refusal_has_an_example() {
    let refusals = refusals();
    let normalise = variants(NORMALISE, "NormaliseError");
    let promote = variants(PROMOTE, "PromoteError");
    assert!(normalise.len() >= 10 && promote.len() >= 4);
    for variant in normalise.iter().chain(&promote) {
        assert!(
            refusals.iter().any(|refusal| refusal.variant == *variant),
            "no file of tests/golden/ is refused for {variant}"
        );
    }
}

#[test]
fn every_refusal_has_a_row_in_the_document() {
    let documented = documented();
    for refusal in refusals() {
        let message = words(&refusal.message);
        assert!(
            documented
                .iter()
                .any(|pattern| matches(&words(pattern), &message)),
            "docs/promotion.md has no row for: {}",
            refusal.message
        );
    }
    // Proposals that the validator knows and we do not accept.
    let (_, features) = NORMALISE.split_once("fn feature(").unwrap();
    let (features, _) = features.split_once("];").unwrap();
    let quoted: Vec<&str> = features.split('"').skip(1).step_by(2).collect();
    assert!(quoted.len() > 10);
    for feature in quoted {
        assert!(
            documented.iter().any(|pattern| pattern == feature),
            "docs/promotion.md does not name: {feature}"
        );
    }
}
