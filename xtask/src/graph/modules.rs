//! Which module of a crate imports which, and whether there is a cycle among them.
//!
//! A module here is one that the crate's root declares, with all below it. What it imports is
//! read from its text: paths that begin at the root, by `crate::` or `super::`. A name that the
//! root has from a module counts as that module; what the root declares itself, every module
//! may import. Tests may import what they like; they are the last thing in a file.

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
    let (mut imports, mut names_of_root) = (Imports::new(), BTreeMap::new());
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
            let names: Vec<&str> = below.iter().filter_map(|name| name.to_str()).collect();
            match names[..] {
                ["lib"] => names_of_root = imported_by_root(&std::fs::read_to_string(&path)?),
                // What lies in `tests.rs` is a test.
                [] | [_, .., "tests"] => {}
                [module, .., last] | [module @ last] => {
                    let depth = names.len() - usize::from(last == "mod");
                    let found = imported(&std::fs::read_to_string(&path)?, depth);
                    imports.entry(module.to_owned()).or_default().extend(found);
                }
            }
        }
    }
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    names_of_root.retain(|_, module| modules.contains(module));
    for (module, needs) in &mut imports {
        let of_module = |name: String| names_of_root.get(&name).cloned().unwrap_or(name);
        *needs = std::mem::take(needs).into_iter().map(of_module).collect();
        needs.remove(module);
    }
    Ok(imports)
}

/// The modules and names that a file imports from its crate's root, which is `depth` modules
/// above it.
fn imported(text: &str, depth: usize) -> BTreeSet<String> {
    let code = code(text);
    let to_root = ["crate::".to_owned(), "super::".repeat(depth)];
    let paths = to_root
        .iter()
        .flat_map(|to_root| code.split(to_root.as_str()).skip(1));
    let names = paths.flat_map(first_names);
    names.filter(|name| !name.is_empty()).collect()
}

/// What the root imports, by name, and from which module.
fn imported_by_root(text: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let code = format!("\n{}", code(text)).replace("\npub use ", "\nuse ");
    for path in code.split("\nuse ").skip(1) {
        let path = path.split(';').next().unwrap_or_default();
        let path = path.trim_start_matches("crate::");
        let (module, items) = path.split_once("::").unwrap_or_default();
        for item in items.split([',', '{', '}']) {
            let name = item.rsplit("::").next().unwrap_or_default();
            let name = name.rsplit(" as ").next().unwrap_or_default().trim();
            names.insert(name.to_owned(), module.to_owned());
        }
    }
    names
}

/// What of a file is compiled when it is not tested, without comments.
fn code(text: &str) -> String {
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
    code
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
        assert_eq!(imported(text, 1), expected);
    }

    #[test]
    fn what_lies_above_is_counted_from_where_a_file_lies() {
        let text = "use super::{one, two::Two};\nuse super::super::three;\n\
            pub(super) fn four() {\n    super::super::five::run();\n}\n";
        assert_eq!(imported(text, 2), names(["three", "five"]));
        assert!(imported(text, 1).is_superset(&names(["one", "two"])));
    }

    #[test]
    fn what_the_root_imports_is_its_modules() {
        let text = "//! Root.\nmod one;\n\nuse std::io;\nuse one::{One, two::Two as Three};\n\
            pub use crate::four::Four;\n\nfn five() {}\n";
        let found = imported_by_root(text);
        let of = |name: &str| found.get(name).map(String::as_str);
        assert_eq!([of("One"), of("Three")], [Some("one"); 2]);
        assert_eq!([of("Four"), of("Two")], [Some("four"), None]);
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
            ("lib.rs", "use one::One;\nuse std::io;\nstruct Root;"),
            ("one.rs", "use crate::one::part::Part;"),
            ("one/part.rs", "use crate::two::Two;"),
            ("one/tests.rs", "use crate::three::Three;"),
            ("two.rs", "#[cfg(test)]\nmod tests { use crate::one::One; }"),
            ("three.rs", "use super::{One, Root, two::Two};"),
        ] {
            std::fs::write(folder.join(file), text).unwrap();
        }
        let read = read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        let expected = imports(&["one -> two", "two", "three -> Root one two"]);
        assert_eq!(read.unwrap(), expected);
    }
}
