//! `ashway path create`, `show` and `rm`: a running node's paths.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;

use ashway_api::request::{self, NewPath};
use ashway_api::{Owner, Scalar};
use ashway_node::show;
use clap::Args;
use serde_json::{Value, json};

use crate::commands::{Node, word};
use crate::face::{Face, clean, clean_lines};
use crate::failure::{Exit, Failure};

/// Bytes of one request; the node takes 64 KiB.
const REQUEST_BYTES: usize = 48 << 10;

/// Create a path on a running node, from a module and attributes
///
/// The path leads from MODULE through the node's graph, as far as the attributes say
/// (`ashway path plan` shows it without a node). A relay, and a path that is bound to a
/// handler, runs in the kernel tier if it can, any other path in the user tier. With `--from` each line of a file is a path:
/// {"module": ..., "attrs": {...}, "name": ..., "match": ..., "tier": ..., "owner": ...}. The first
/// line that is refused ends it; the paths of the lines before it stay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway path create --module end --attr local=10.0.0.1:9000 --attr pathname=eth:veth0
  ashway path create --name relay2 --module eth:veth0 --attr pathname=udp/relay \\
      --attr local=10.0.1.1:9001 --attr next_hop=10.0.3.2:9001 ...
  ashway path create --from paths.ndjson")]
pub(crate) struct Create {
    /// The module that the path is created from
    #[arg(long, required_unless_present = "from", conflicts_with = "from")]
    module: Option<String>,
    /// An attribute of the path; can be given several times
    #[arg(long = "attr", value_name = "NAME=VALUE", conflicts_with = "from")]
    attrs: Vec<String>,
    /// What must be true of its messages besides (pcap-filter words)
    #[arg(long = "match", value_name = "FILTER", conflicts_with = "from")]
    filter: Option<String>,
    /// Where it may run: auto, kernel or user
    #[arg(long, value_name = "TIER", conflicts_with = "from")]
    tier: Option<String>,
    /// Its name; without it the node makes one up
    #[arg(long, conflicts_with = "from")]
    name: Option<String>,
    /// The process it belongs to: it goes when that has ended, however that ends
    /// [default: the node]
    #[arg(long, value_name = "PID", conflicts_with = "from")]
    owner: Option<u32>,
    /// Many paths: a file of one JSON object a line
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Show how each was created, step by step
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    node: Node,
}

/// Show a path of a running node
///
/// Its stages, tier, attributes, ends, queues with length and maximum, and its account:
/// messages received and what became of them, time, memory.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The path
    name: String,
    #[command(flatten)]
    node: Node,
}

/// Remove paths of a running node
///
/// Their messages go to other paths that match them, or to the host.
#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// The paths
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    node: Node,
}

impl Create {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let paths = match &self.from {
            Some(file) => lines(file)?,
            None => vec![(0, self.one()?)],
        };
        let (mut created, mut documents, mut took_ns) = (Vec::new(), Vec::new(), 0);
        let mut send = |lot: &[(usize, NewPath)]| -> Result<(), Failure> {
            let request = request::Create {
                paths: lot.iter().map(|(_, path)| path.clone()).collect(),
                log: self.verbose,
            };
            let mut said = self.node.clone().connect()?.request(request)?;
            took_ns += said.answer.took_ns;
            created.extend(said.answer.created);
            if let Value::Array(list) = said.document["created"].take() {
                documents.extend(list);
            }
            Ok(())
        };
        let lots = lots(paths, |(_, path)| json!(path).to_string().len());
        if let Some(file) = &self.from {
            one_after_another(&lots, &mut send).map_err(|failure| failure.in_file(file))?;
        } else {
            for lot in &lots {
                send(lot)?;
            }
        }
        let document = json!({ "created": documents, "took_ns": took_ns });
        face.show(&document, || {
            let mut text = String::new();
            for path in &created {
                if self.verbose {
                    text += &clean_lines(path.log.as_deref().unwrap_or_default());
                }
                if created.len() <= 20 {
                    let (name, tier) = (clean(&path.path), clean(&path.tier));
                    let _ = writeln!(text, "path `{name}` is there, in the {tier} tier");
                }
                let why = match self.tier.as_deref() {
                    Some("user") => false,
                    Some("kernel") => true,
                    _ => created.len() <= 20,
                };
                if why {
                    text += &show::why_not(&path.promotion);
                }
            }
            let us = took_ns as f64 / 1000.0;
            let _ = writeln!(text, "{} created in {us:.0} us", created.len());
            text
        })
    }

    fn one(&self) -> Result<NewPath, Failure> {
        let attrs = super::attrs(&self.attrs)?.into_iter();
        let attrs = attrs.map(|(name, value)| (name.to_owned(), Scalar::Text(value.to_owned())));
        Ok(NewPath {
            module: self.module.clone().unwrap_or_default(),
            name: self.name.clone(),
            attrs: attrs.collect(),
            filter: self.filter.clone(),
            tier: word("tier", self.tier.as_deref())?,
            owner: self.owner.map(Owner::Process),
        })
    }
}

/// Sends lots of lines, each with its number. The node takes a lot as a whole or not
/// at all and does not say which line it refuses, so that the lines of a refused lot
/// are sent again one by one.
fn one_after_another(
    lots: &[Vec<(usize, NewPath)>],
    send: &mut impl FnMut(&[(usize, NewPath)]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut before = 0;
    for lot in lots {
        match send(lot) {
            Ok(()) => before += lot.len(),
            Err(failure) if failure.exit == Exit::NotReachable => return Err(failure),
            Err(_) => {
                for line in lot {
                    send(std::slice::from_ref(line))
                        .map_err(|failure| refused(line, before, failure))?;
                    before += 1;
                }
            }
        }
    }
    Ok(())
}

/// That a line is refused, with what has been done by then.
fn refused((number, path): &(usize, NewPath), before: usize, failure: Failure) -> Failure {
    let name = path.name.as_ref();
    let name = name.map_or_else(String::new, |name| format!(" (`{}`)", clean(name)));
    let go_on = format!(
        "{before} paths of the lines before it were created and stay; mend the line, and go on \
         with a file that begins with it"
    );
    Failure {
        error: format!("line {number}{name}: {}", failure.error),
        hint: Some(match failure.hint {
            Some(hint) if !hint.is_empty() => format!("{hint}; {go_on}"),
            _ => go_on,
        }),
        ..failure
    }
}

/// Every line that is not empty, with its number.
fn lines(file: &PathBuf) -> Result<Vec<(usize, NewPath)>, Failure> {
    let unreadable = |error: std::io::Error| {
        let message = format!("cannot read `{}`", file.display());
        Failure::new(Exit::Usage, message)
            .because(&error)
            .in_file(file)
    };
    let mut reader = BufReader::new(File::open(file).map_err(unreadable)?);
    let mut paths = Vec::new();
    for number in 1.. {
        // With the end of the line.
        let most = REQUEST_BYTES as u64 + 1;
        let mut line = Vec::new();
        let read = (&mut reader).take(most).read_until(b'\n', &mut line);
        if read.map_err(unreadable)? == 0 {
            break;
        }
        let line = line.trim_ascii_end();
        if line.is_empty() {
            continue;
        }
        if line.len() > REQUEST_BYTES {
            let message = format!("line {number} has more than {REQUEST_BYTES} bytes");
            return Err(Failure::new(Exit::Usage, message)
                .hint("write each path on a line of its own; nothing was created")
                .in_file(file));
        }
        let path = ashway_api::json::parse(line).map_err(|error| {
            let failure = if error.is_data() {
                let message = format!("line {number}: a key is there twice; nothing was created");
                Failure::new(Exit::Usage, message).hint("give each key once")
            } else {
                let message = format!("`{}`, line {number}, is no JSON", file.display());
                Failure::new(Exit::Usage, message)
            };
            failure.because(&error).in_file(file)
        })?;
        let path = NewPath::read(path).map_err(|misread| {
            let failure = Failure::from(misread);
            Failure {
                error: format!("line {number}: {}; nothing was created", failure.error),
                ..failure
            }
            .in_file(file)
        })?;
        paths.push((number, path));
    }
    Ok(paths)
}

/// In lots that fit into one request.
fn lots<T>(items: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut lots = Vec::new();
    let (mut lot, mut size) = (Vec::new(), 0);
    for item in items {
        let more = bytes(&item) + 1;
        if size + more > REQUEST_BYTES && !lot.is_empty() {
            lots.push(std::mem::take(&mut lot));
            size = 0;
        }
        size += more;
        lot.push(item);
    }
    lots.push(lot);
    lots
}

impl Show {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let path = self.name;
        let said = self.node.connect()?.request(request::Show { path })?;
        face.show(&said.document, || show::path(&said.answer))
    }
}

impl Rm {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let (mut removed, mut took_ns) = (Vec::new(), 0);
        let mut names = self.names;
        let mut seen = HashSet::new();
        // One of another lot would be gone by then.
        names.retain(|name| seen.insert(name.clone()));
        for paths in lots(names, String::len) {
            let mut node = self.node.clone().connect()?;
            let said = node.request(request::Remove { paths })?;
            took_ns += said.answer.took_ns;
            removed.extend(said.answer.removed);
        }
        let document = json!({ "removed": removed, "took_ns": took_ns });
        face.show(&document, || format!("{} removed", removed.len()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_is_refused_is_named_with_what_was_done() {
        let path = |name| NewPath::read(json!({ "module": "end", "name": name })).unwrap();
        let line = |number: usize| (number, path(format!("p{number}")));
        let lots = [vec![line(1), line(2)], vec![line(4), line(5), line(6)]];
        let mut done = Vec::new();
        let mut send = |lot: &[(usize, NewPath)]| {
            if lot.iter().any(|(number, _)| *number == 5) {
                return Err(Failure::new(Exit::Usage, "`next_hop` is missing").hint("give it"));
            }
            done.extend(lot.iter().map(|(number, _)| *number));
            Ok(())
        };
        let failure = one_after_another(&lots, &mut send).unwrap_err();
        assert_eq!(failure.error, "line 5 (`p5`): `next_hop` is missing");
        let hint = failure.hint.unwrap();
        assert!(
            hint.starts_with("give it; 3 paths of the lines before"),
            "{hint}"
        );
        assert_eq!(done, [1, 2, 4]);
    }

    #[test]
    fn a_line_that_no_request_holds_is_named() {
        let name = format!("ashway-long-{}.ndjson", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(
            &file,
            format!(
                "\n{}\n{}",
                r#"{"module":"end"}"#,
                "x".repeat(REQUEST_BYTES + 1)
            ),
        )
        .unwrap();
        let failure = lines(&file).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(failure.error, "line 3 has more than 49152 bytes");
        assert!(failure.hint.unwrap().contains("nothing was created"));
    }

    #[test]
    fn a_line_with_a_key_twice_is_named_before_anything_is_created() {
        let name = format!("ashway-twice-{}.ndjson", std::process::id());
        let file = std::env::temp_dir().join(name);
        let twice = r#"{"module":"end","attrs":{"ttl":1,"ttl":2}}"#;
        std::fs::write(&file, format!("{{\"module\":\"end\"}}\n{twice}\n")).unwrap();
        let failure = lines(&file).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        let says = "line 2: a key is there twice; nothing was created";
        assert_eq!((failure.error.as_str(), failure.exit), (says, Exit::Usage));
        assert!(failure.because[0].starts_with("key `ttl` is there twice"));
    }

    #[test]
    fn a_line_with_an_unknown_key_is_named_before_anything_is_created() {
        let name = format!("ashway-key-{}.ndjson", std::process::id());
        let file = std::env::temp_dir().join(name);
        let text = "{\"module\":\"end\"}\n{\"module\":\"end\",\"nam\":\"p\"}\n";
        std::fs::write(&file, text).unwrap();
        let failure = lines(&file).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        let says = "line 2: unknown key `nam`; nothing was created";
        assert_eq!((failure.error.as_str(), failure.exit), (says, Exit::Usage));
        assert!(failure.hint.unwrap().contains("did you mean `name`?"));
    }
}
