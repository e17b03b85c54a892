//! Which module of a crate imports which, and whether there is a cycle among them.
//!
//! A module here is one that the crate's root declares, with all below it. What it imports is
//! read from its text: paths that begin with `crate::`. Tests may import what they like; they
//! are the last thing in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The modules of a crate, each with those that it imports.
pub(super) type Imports = BTreeMap<String, BTreeSet<String>>;

/// Fails, with the modules and their imports, if there is a cycle in the crate of this folder.
pub(super) fn check(source: &Path) -> Result<()> {
    let cycles = cycles(read(source)?);
    ensure!(
        cycles.is_empty(),
        "modules of `{}` import each other in a cycle; move what one of them needs to a \
         module below both:\n{}",
        source.display(),
        lines(&cycles)
    );
    Ok(())
}

/// The imports of all modules that lie in this folder.
fn read(source: &Path) -> Result<Imports> {
    let mut imports = Imports::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("cannot read `{}`", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let below = path.strip_prefix(source)?.with_extension("");
            let mut names = below.iter().filter_map(|name| name.to_str());
            let module = names.next().unwrap_or_default().to_owned();
            // The root imports nothing, and what lies in `tests.rs` is a test.
            if module != "lib" && names.next_back() != Some("tests") {
                let text = std::fs::read_to_string(&path)?;
                imports.entry(module).or_default().extend(imported(&text));
            }
        }
    }
    for (module, needs) in &mut imports {
        needs.remove(module);
    }
    Ok(imports)
}

/// The modules that a file imports from its crate.
fn imported(text: &str) -> BTreeSet<String> {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            // The tests, unless they lie in another file.
            let declared = lines.by_ref().find(|line| !line.starts_with("#["));
            if declared.is_some_and(|line| line.ends_with('{')) {
                break;
            }
        } else if !line.trim_start().starts_with("//") {
            code += line;
            code.push('\n');
        }
    }
    let names = code.split("crate::").skip(1).flat_map(first_names);
    names.filter(|name| !name.is_empty()).collect()
}

/// The first names of a path: one, or those of a list in braces.
fn first_names(path: &str) -> BTreeSet<String> {
    let name = |text: &str| -> String {
        let is_part = |letter: &char| letter.is_alphanumeric() || *letter == '_';
        text.trim_start().chars().take_while(is_part).collect()
    };
    let Some(list) = path.strip_prefix('{') else {
        return BTreeSet::from([name(path)]);
    };
    let mut names = BTreeSet::new();
    let (mut depth, mut item) = (0, String::new());
    for letter in list.chars() {
        match letter {
            '}' if depth == 0 => break,
            ',' if depth == 0 => names.extend([name(&std::mem::take(&mut item))]),
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if depth == 0 => item.push(letter),
            _ => {}
        }
    }
    names.insert(name(&item));
    names
}

/// What is left when every module is taken away that imports none of the rest, or that none of
/// the rest imports: cycles, and what lies between two of them.
fn cycles(mut imports: Imports) -> Imports {
    loop {
        let left: BTreeSet<String> = imports.keys().cloned().collect();
        for needs in imports.values_mut() {
            needs.retain(|needed| left.contains(needed));
        }
        let wanted: BTreeSet<String> = imports.values().flatten().cloned().collect();
        imports.retain(|module, needs| !needs.is_empty() && wanted.contains(module));
        if imports.len() == left.len() {
            return imports;
        }
    }
}

fn lines(imports: &Imports) -> String {
    let line = |(module, needs): (&String, &BTreeSet<String>)| {
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        format!("  {module} -> {}\n", needs.join(" "))
    };
    imports.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    /// Imports in the form `module -> needed needed`.
    fn imports(lines: &[&str]) -> Imports {
        let parse = |line: &&str| {
            let (module, needs) = line.split_once("->").unwrap_or((line, ""));
            let needs = needs.split_whitespace().map(str::to_owned).collect();
            (module.trim().to_owned(), needs)
        };
        lines.iter().map(parse).collect()
    }

    #[test]
    fn imports_are_found_wherever_they_stand() {
        let text = "//! See [`crate::comment`].\n#[cfg(test)]\nmod tests;\n\
            use crate::one::{Two, Three};\n\
            use crate::{four, five::{self, Six}, seven,};\npub(crate) use crate::eight::Nine;\n\
            use std::{fs, io};\nfn ten() {\n    // crate::comment\n    crate::eleven::run();\n}\n\
            #[cfg(test)]\nmod tests {\n    use crate::twelve;\n}\n";
        let expected = names(["one", "four", "five", "seven", "eight", "eleven"]);
        assert_eq!(imported(text), expected);
    }

    #[test]
    fn layers_have_no_cycle() {
        let layers = imports(&["a -> b c", "b -> c d", "c -> d", "d"]);
        assert_eq!(cycles(layers), Imports::new());
    }

    #[test]
    fn a_cycle_is_found_and_shown_without_what_hangs_on_it() {
        let lines_in = ["a -> b", "b -> c d", "c -> e", "d", "e -> b f", "f -> d"];
        let found = cycles(imports(&lines_in));
        assert_eq!(found, imports(&["b -> c", "c -> e", "e -> b"]));
        assert_eq!(lines(&found), "  b -> c\n  c -> e\n  e -> b\n");
        let two = cycles(imports(&["a -> b", "b -> a"]));
        assert_eq!(two.len(), 2);
    }

    /// A folder's files are its module's, and tests import what they like.
    #[test]
    fn files_below_a_module_are_its_own() {
        let folder = std::env::temp_dir().join(format!("modules-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("one")).unwrap();
        for (file, text) in [
            ("lib.rs", "use crate::one::One;"),
            ("one.rs", "use crate::one::part::Part;"),
            ("one/part.rs", "use crate::two::Two;"),
            ("one/tests.rs", "use crate::three::Three;"),
            ("two.rs", "#[cfg(test)]\nmod tests { use crate::one::One; }"),
        ] {
            std::fs::write(folder.join(file), text).unwrap();
        }
        let read = read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read.unwrap(), imports(&["one -> two", "two"]));
    }
}
