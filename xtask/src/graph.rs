//! `cargo xtask graph`: which crate of the workspace depends on which.
//!
//! Asks `cargo tree` instead of `cargo metadata`, whose JSON would need a parser.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

pub(crate) fn print() -> Result<()> {
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
    for (name, needs) in edges(&String::from_utf8(output.stdout)?) {
        match needs.as_slice() {
            [] => println!("{name}"),
            needs => println!("{name} -> {}", needs.join(" ")),
        }
    }
    Ok(())
}

/// Each member with the members it needs, from lines such as
/// `1ashway-abi v0.1.0 (...)`, whose first digit is the depth.
fn edges(tree: &str) -> Vec<(&str, Vec<&str>)> {
    let mut edges: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in tree.lines() {
        let word = line.split(' ').next().unwrap_or_default();
        if let Some(member) = word.strip_prefix('0') {
            edges.push((member, Vec::new()));
        } else if let (Some(needed), Some((_, needs))) = (word.strip_prefix('1'), edges.last_mut())
        {
            needs.push(needed);
        }
    }
    let members: Vec<&str> = edges.iter().map(|(member, _)| *member).collect();
    for (_, needs) in &mut edges {
        needs.retain(|needed| members.contains(needed));
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_arrows_between_members_only() {
        let tree = "0abi v1 (/a)\n\n0ring v1 (/r)\n1abi v1 (/a)\n1libc v0.2\n";
        assert_eq!(edges(tree), [("abi", vec![]), ("ring", vec!["abi"])]);
    }
}
