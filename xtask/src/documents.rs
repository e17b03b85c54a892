//! Keeps the documents in line with the tree: what one of them, or a comment, points
//! at exists.
//!
//! A link is `[text](file.md#section)`; a comment names a section as `docs/facts.md,
//! "Laundering"`, over two lines if need be.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Pages by whose names nothing here may be cited, because they are not here.
const ELSEWHERE: [&str; 3] = ["DESIGN", "FACTS", "STYLE"];

/// All files of the tree that hold text in a form known here, with their paths from
/// the root.
pub(crate) fn texts() -> HashMap<PathBuf, String> {
    let mut texts = HashMap::new();
    let mut folders = vec![crate::root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the tree") {
            let entry = entry.expect("an entry of it");
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_str().expect("names are plain");
            if entry.file_type().expect("its type").is_dir() {
                if name != "target" && !name.starts_with(".git") {
                    folders.push(path);
                }
            } else if ["rs", "md", "toml", "c", "h", "sh", "wat"]
                .iter()
                .any(|ending| path.extension().is_some_and(|it| it == *ending))
            {
                let text = fs::read_to_string(&path).expect("text");
                let path = path.strip_prefix(crate::root()).expect("below the root");
                texts.insert(path.to_path_buf(), text);
            }
        }
    }
    texts
}

/// A document's lines, without its blocks of code.
fn prose(document: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    document.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// A document's headings, as written.
fn headings(document: &str) -> Vec<&str> {
    let headings = prose(document).filter(|line| line.starts_with('#'));
    headings
        .map(|line| line.trim_start_matches('#').trim())
        .collect()
}

/// What a link calls a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
    });
    kept.collect()
}

/// A file's text in one line, without what begins a comment's lines.
fn flat(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim();
        ["//!", "///", "//"]
            .iter()
            .find_map(|start| line.strip_prefix(start))
            .unwrap_or(line)
            .trim()
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// The sections that `text` names, as pairs of document and heading.
fn cited(text: &str) -> Vec<(String, String)> {
    let flat = flat(text);
    let mut cited = Vec::new();
    let of_a_path = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    for (at, found) in flat.match_indices(".md, \"") {
        let start = flat[..at].trim_end_matches(of_a_path).len();
        let document = &flat[start..at + ".md".len()];
        // One after another: "A", "B" and "C".
        let mut rest = &flat[at + found.len()..];
        while let Some((heading, after)) = rest.split_once('"') {
            cited.push((document.to_owned(), heading.to_owned()));
            let next = [", \"", " and \""]
                .iter()
                .find_map(|joint| after.strip_prefix(joint));
            let Some(next) = next else { break };
            rest = next;
        }
    }
    cited
}

/// The relative links of a document.
fn links(document: &str) -> Vec<&str> {
    let mut links = Vec::new();
    for line in prose(document) {
        for (at, found) in line.match_indices("](") {
            let target = line[at + found.len()..].split_once(')');
            links.extend(
                target
                    .map(|(target, _)| target)
                    .filter(|it| !it.contains("://")),
            );
        }
    }
    links
}

/// What is wrong with `link` in the document at `from`.
fn broken(link: &str, from: &Path, texts: &HashMap<PathBuf, String>) -> Option<&'static str> {
    let (path, section) = link.split_once('#').unwrap_or((link, ""));
    let beside = from.parent().expect("a file lies in a folder");
    let mut target = PathBuf::new();
    for part in &beside.join(path) {
        if part == ".." {
            target.pop();
        } else {
            target.push(part);
        }
    }
    let target = if path.is_empty() { from } else { &target };
    if !crate::root().join(target).exists() {
        return Some("there is no such file");
    }
    let known = texts.get(target).map_or_else(Vec::new, |text| {
        headings(text).into_iter().map(anchor).collect()
    });
    let lost = !section.is_empty() && !known.iter().any(|it| it == section);
    lost.then_some("there is no such section")
}

#[test]
fn every_section_that_is_named_exists() {
    let texts = texts();
    let mut seen = 0;
    for (path, text) in &texts {
        for (document, heading) in cited(text) {
            let headings = texts.get(Path::new(&document)).map(|text| headings(text));
            assert!(
                headings.is_some_and(|all| all.contains(&heading.as_str())),
                "{}: there is no section \"{heading}\" in {document}",
                path.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} sections are named");
}

#[test]
fn every_measured_fact_is_needed_somewhere() {
    let texts = texts();
    let named: Vec<_> = texts.values().flat_map(|text| cited(text)).collect();
    let linked: Vec<_> = texts.values().flat_map(|text| links(text)).collect();
    let facts = &texts[Path::new("docs/facts.md")];
    let sections = facts.lines().filter_map(|line| line.strip_prefix("### "));
    for section in sections {
        let link = format!("facts.md#{}", anchor(section));
        assert!(
            named.contains(&("docs/facts.md".to_owned(), section.to_owned()))
                || linked.iter().any(|target| target.ends_with(&link)),
            "nothing names \"{section}\""
        );
    }
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let texts = texts();
    let documents = texts
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|it| it == "md"));
    let mut seen = 0;
    for (path, text) in documents {
        for link in links(text) {
            if let Some(what) = broken(link, path, &texts) {
                panic!("{}: {link}: {what}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} links");
}

#[test]
fn no_page_outside_the_tree_is_cited() {
    for (path, text) in texts() {
        let flat = flat(&text);
        for word in ELSEWHERE {
            let cites = flat.match_indices(word).any(|(at, _)| {
                let after = flat[at + word.len()..].strip_prefix(' ');
                after.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            });
            assert!(!cites, "{}: cites {word}", path.display());
        }
    }
}

#[test]
fn a_name_that_is_broken_over_two_lines_is_read() {
    let text = "//! Twice (docs/a.md, \"One\n//! two\", \"Three\" and \"Four\").";
    let pairs = ["One two", "Three", "Four"].map(|it| ("docs/a.md".to_owned(), it.to_owned()));
    assert_eq!(cited(text), pairs);
}

#[test]
fn a_link_to_nothing_is_seen() {
    let here = Path::new("docs/page.md");
    let text = "# Page\n\n## What it does not do\n\n```sh\n# not a heading\n```\n";
    let texts = HashMap::from([(here.to_path_buf(), text.to_owned())]);
    assert_eq!(broken("facts.md", here, &texts), None);
    assert_eq!(broken("../README.md", here, &texts), None);
    assert_eq!(
        broken("nothing.md", here, &texts),
        Some("there is no such file")
    );
    let page = HashMap::from([(PathBuf::from("docs/facts.md"), text.to_owned())]);
    assert_eq!(broken("facts.md#what-it-does-not-do", here, &page), None);
    assert_eq!(
        broken("facts.md#not-a-heading", here, &page),
        Some("there is no such section")
    );
}

#[test]
fn every_name_in_the_glossary_is_in_the_code() {
    let texts = texts();
    let glossary = &texts[Path::new("GLOSSARY.md")];
    let (_, names) = glossary
        .split_once("## Names in the code")
        .expect("the glossary has them");
    let of_a_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut used: HashSet<&str> = HashSet::new();
    for (path, text) in &texts {
        if path.starts_with("crates") {
            used.extend(text.split(|c| !of_a_name(c)));
        }
    }
    let mut seen = 0;
    for row in names.lines().filter(|line| line.starts_with("| `")) {
        let cell = row.split('|').nth(1).unwrap_or_default();
        for name in cell.split('`').skip(1).step_by(2) {
            assert!(
                used.contains(name),
                "nothing in the code is called `{name}`"
            );
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} names");
}

/// `a/{b,c}/d` as `a/b/d` and `a/c/d`.
fn expanded(path: &str) -> Vec<String> {
    let Some((start, rest)) = path.split_once('{') else {
        return vec![path.to_owned()];
    };
    let (names, end) = rest.split_once('}').expect("a brace is closed");
    let names = names.split(',');
    names.map(|name| format!("{start}{name}{end}")).collect()
}

#[test]
fn every_test_that_a_feature_names_is_there() {
    let texts = texts();
    let mut seen = 0;
    for row in texts[Path::new("docs/features.md")].lines() {
        let Some(tests) = row.trim_end_matches(" |").rsplit(" | ").next() else {
            continue;
        };
        if !row.starts_with("| ") {
            continue;
        }
        for name in tests.split('`').skip(1).step_by(2) {
            // Others are commands, their columns and their parts.
            let rust = Path::new(name).extension().is_some_and(|it| it == "rs");
            let path = rust || name.contains('/') || name == "forward";
            if !path || name.contains(' ') {
                continue;
            }
            for path in expanded(name) {
                let there = [&path, &format!("tests/netns/tests/{path}")]
                    .iter()
                    .any(|it| crate::root().join(it).exists());
                assert!(there, "features.md names `{path}`: {row}");
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "only {seen} tests");
}
