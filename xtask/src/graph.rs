//! `cargo xtask graph`: which crate of the workspace depends on which.
//!
//! `--check` compares that with what ARCHITECTURE.md shows, and looks for cycles among the
//! modules of [some](LAYERED). Asks `cargo tree` instead of
//! `cargo metadata`, whose JSON would need a parser.

mod modules;

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::root;

/// Where ARCHITECTURE.md has the graph: in the first block of code after this.
const HEADING: &str = "### Crate graph";

/// Crates whose modules form layers: none imports one that imports it, however indirectly.
const LAYERED: [&str; 2] = ["crates/worker", "crates/node"];

pub(crate) fn print() -> Result<()> {
    print!("{}", graph()?);
    Ok(())
}

/// Fails, with the lines that differ, if ARCHITECTURE.md shows another graph, and if modules
/// import each other that should form layers.
pub(crate) fn check() -> Result<()> {
    let path = root().join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    let shown = shown(&page).context("ARCHITECTURE.md has no block of code for its graph")?;
    let differing = differing(shown, &graph()?);
    ensure!(
        differing.is_empty(),
        "the graph in ARCHITECTURE.md is not that of the crates (- page, + crates; \
         `cargo xtask graph` prints it):\n{differing}"
    );
    for folder in LAYERED {
        modules::check(&root().join(folder).join("src"))?;
    }
    Ok(())
}

/// A line for each member, in the order of `Cargo.toml`.
fn graph() -> Result<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "tree",
            "--workspace",
            "--depth=1",
            "--prefix=depth",
            "--no-dedupe",
        ])
        .args(["--edges=normal,build", "--format={p}"])
        .current_dir(root())
        .output()
        .context("cannot start `cargo tree`")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("`cargo tree` failed: {}", why.trim());
    }
    let tree = String::from_utf8(output.stdout)?;
    let mut members = members(&tree);
    let folders = folders(&manifest);
    members.sort_by_key(|member| {
        let place = |folder: &&str| member.folder.ends_with(&format!("/{folder}"));
        folders.iter().position(place)
    });
    Ok(lines(&members))
}

/// A member of the workspace.
#[derive(Debug, PartialEq, Eq)]
struct Member<'t> {
    name: &'t str,
    folder: &'t str,
    /// The members that it needs.
    needs: Vec<&'t str>,
}

/// The members in lines such as `0ashway-abi v0.1.0 (/folder)`, whose first digit is the
/// depth: one that is needed follows the one that needs it.
fn members(tree: &str) -> Vec<Member<'_>> {
    let mut members: Vec<Member<'_>> = Vec::new();
    for line in tree.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        if let Some(name) = name.strip_prefix('0') {
            let folder = line.split(['(', ')']).nth(1).unwrap_or_default();
            members.push(Member {
                name,
                folder,
                needs: Vec::new(),
            });
        } else if let (Some(needed), Some(member)) = (name.strip_prefix('1'), members.last_mut()) {
            member.needs.push(needed);
        }
    }
    let names: Vec<&str> = members.iter().map(|member| member.name).collect();
    for member in &mut members {
        member.needs.retain(|needed| names.contains(needed));
    }
    members
}

/// The folders of the workspace's members, in the manifest's order.
fn folders(manifest: &str) -> Vec<&str> {
    let list = manifest.split_once("members = [");
    let list = list.and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).collect()
}

/// The graph as ARCHITECTURE.md has it.
fn lines(members: &[Member<'_>]) -> String {
    let short = |name: &&str| name.trim_start_matches("ashway-").to_owned();
    let line = |member: &Member<'_>| match member.needs.as_slice() {
        [] => format!("{}\n", member.name),
        needs => {
            let needs: Vec<String> = needs.iter().map(short).collect();
            format!("{} -> {}\n", member.name, needs.join(" "))
        }
    };
    members.iter().map(line).collect()
}

/// The block of code below the heading.
fn shown(page: &str) -> Option<&str> {
    let (_, section) = page.split_once(HEADING)?;
    let (_, block) = section.split_once("```text\n")?;
    block.split_once("```").map(|(block, _)| block)
}

/// Lines that only the page has (`-`) or only the crates (`+`); one where the order is
/// another.
fn differing(page: &str, crates: &str) -> String {
    let only = |sign: char, these: &str, those: &str| -> Vec<String> {
        let missing = |line: &&str| !those.lines().any(|other| other == *line);
        let missing = these.lines().filter(missing);
        missing.map(|line| format!("  {sign} {line}\n")).collect()
    };
    let lines = [only('-', page, crates), only('+', crates, page)];
    let lines = lines.concat().concat();
    if lines.is_empty() && page != crates {
        return "  the lines are in another order than Cargo.toml's members\n".to_owned();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0abi v1 (/w/crates/abi)\n\n0ring v1 (/w/crates/ring)\n\
        1abi v1 (/w/crates/abi)\n1libc v0.2\n";

    #[test]
    fn keeps_arrows_between_members_only() {
        assert_eq!(lines(&members(TREE)), "abi\nring -> abi\n");
    }

    #[test]
    fn members_are_in_the_order_of_the_manifest() {
        let manifest =
            "[workspace]\n# In order.\nmembers = [\n    \"crates/ring\",\n    \"crates/abi\",\n]\n";
        assert_eq!(folders(manifest), ["crates/ring", "crates/abi"]);
    }

    #[test]
    fn an_arrow_that_the_page_lacks_is_shown() {
        let page = "# A\n\n### Crate graph\n\nProse.\n\n```text\nabi\nring\n```\n";
        let differing = differing(shown(page).unwrap(), &lines(&members(TREE)));
        assert_eq!(differing, "  - ring\n  + ring -> abi\n");
    }

    #[test]
    fn another_order_is_shown() {
        assert_ne!(differing("a\nb\n", "b\na\n"), "");
        assert_eq!(differing("a\nb\n", "a\nb\n"), "");
    }

    /// The page and the crates of this very tree.
    #[test]
    fn architecture_shows_the_crates_as_they_are_and_modules_form_layers() {
        check().unwrap();
    }
}
