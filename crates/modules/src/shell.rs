//! Commands by datagram: create a path, show one, remove one.
//!
//! One datagram is one command, in the words of `ashway path`:
//!
//! ```text
//! create --module MODULE [--name NAME] [--attr NAME=VALUE]...
//! show NAME
//! rm NAME
//! ```
//!
//! What comes back are the words of `ashway path` too, with `ok: ` in front of what
//! has been done. A shell acts for a domain: its paths may take what the domain
//! owns and nothing else, and it sees no others. Whoever is not on the list of
//! `allow` gets an error; the list says who is meant, it is no protection against
//! forged senders: let commands in only from networks where nobody forges.
//!
//! * **Services:** `down`, to the transport that commands come by. A leaf.
//! * **Attributes:** none. Bounds: 1,024 bytes a command, 64 attributes, 16
//!   commands at a time, 5 s for each; 1,400 bytes a reply.
//! * **Verdicts:** `Answered`; `Absorbed` for a command that takes its time (its
//!   reply is originated); `DroppedNoSender`, with nothing done, for one that
//!   cannot be answered.
//! * **Counters:** those of the verdicts.
//! * **Tiers:** user.
//!
//! ```toml
//! [module.shell]
//! kind = "shell"
//! down = "udp.up"
//! domain = "games"
//! allow = ["10.0.1.2"]
//! ```
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), §4.1, the SHELL router.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use ashway_abi::Count;
use ashway_abi::log::acts_on_terminal;
use ashway_path::attrs::{Attrs, Value};
use ashway_path::module::{Kind, Module, Param, Refused, StageAndNext};
use ashway_path::problem::suggest;
use ashway_path::read::Params;
use ashway_path::service::Service;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_path::time::Time;

use crate::Message;
use crate::services::{NET, TRANSPORT};
use crate::way::{Way, onward, way_of_leaf};

/// The kind.
pub static KIND: Kind = Kind {
    name: "shell",
    about: "creates, shows and removes paths by datagram",
    services: &[Service {
        name: "down",
        provides: &NET,
        requires: &TRANSPORT,
        after: true,
    }],
    params: &[
        Param {
            name: "domain",
            about: "the domain it acts for, required",
        },
        Param {
            name: "allow",
            about: "addresses that may command, required",
        },
    ],
};

/// Longest command, in bytes.
const COMMAND_BYTES: usize = 1024;
/// Longest reply, in bytes, with its end of line: it fits a frame.
const REPLY_BYTES: usize = 1400;
/// Most attributes of a command.
const MOST_ATTRS: usize = 64;
/// Longest name, in bytes.
const NAME_BYTES: usize = 64;
/// Most commands that wait for their outcome.
const MOST_WAITING: usize = 16;
/// How long one may wait.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// What a command asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Creates a path.
    Create {
        /// Its name; without it the node makes one up.
        path: Option<Box<str>>,
        /// The module where creation begins.
        module: Box<str>,
        /// Its attributes.
        attrs: Attrs,
    },
    /// Says what there is to know of a path.
    Show {
        /// Its name.
        path: Box<str>,
    },
    /// Removes a path.
    Remove {
        /// Its name.
        path: Box<str>,
    },
}

/// What became of it, in lines: done, or why not.
pub type Outcome = Result<String, String>;

/// Somebody who does what requests ask for.
pub trait Commands: Send + Sync {
    /// Begins to do it, for the sender at this address, if that may ask for it.
    /// Called by whoever runs the path, so that it may not wait: what is done
    /// elsewhere sends its outcome later.
    fn begin(&self, from: SocketAddr, request: Request) -> Receiver<Outcome>;
}

/// A shell.
#[derive(Clone)]
pub struct Shell {
    /// The module's name.
    pub name: Box<str>,
    /// Who may command.
    pub allow: Arc<[IpAddr]>,
    /// Who obeys.
    pub commands: Arc<dyn Commands>,
}

impl Shell {
    /// Makes it from its section of a configuration; mistakes are noted. `commands`
    /// gives who obeys for a domain.
    ///
    /// # Errors
    ///
    /// In `commands`: what is wrong with the domain, and what to do about it.
    pub fn read(
        name: Box<str>,
        params: &mut Params<'_>,
        commands: impl FnOnce(&str) -> Result<Arc<dyn Commands>, (String, String)>,
    ) -> Option<Self> {
        let allow: Vec<IpAddr> = params.list("allow");
        if allow.is_empty() {
            let message = format!("`allow` is empty, so that no address may command `{name}`");
            params.refuse("allow", &message, "name addresses: allow = [\"10.0.1.2\"]");
        }
        let domain: String = params.required("domain")?;
        match commands(&domain) {
            Ok(commands) => Some(Self {
                name,
                allow: allow.into(),
                commands,
            }),
            Err((message, hint)) => {
                params.refuse("domain", &message, &hint);
                None
            }
        }
    }
}

impl Module<Message> for Shell {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        _attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        Ok(StageAndNext {
            stage: Box::new(ShellStage {
                shell: self.clone(),
                way: way_of_leaf(entered),
                waiting: Vec::new(),
            }),
            next: onward(entered),
        })
    }
}

struct ShellStage {
    shell: Shell,
    way: Way,
    waiting: Vec<Waiting>,
}

/// A command on its way, in the message that its reply will go by.
struct Waiting {
    message: Message,
    outcome: Receiver<Outcome>,
    until: Time,
}

impl Stage<Message> for ShellStage {
    fn name(&self) -> &str {
        &self.shell.name
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn memory_bytes(&self) -> usize {
        MOST_WAITING * size_of::<Waiting>()
    }

    fn destroy(&mut self) {
        self.waiting = Vec::new();
    }

    fn traits(&self) -> Traits {
        Traits {
            reads_clock: true,
            ..Traits::default()
        }
    }

    fn take(
        &mut self,
        mut message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if !self.way.is_up(direction) {
            return Step::On(message);
        }
        let sender = message.meta.flow.map(|flow| flow.source);
        let Some(from) = sender.filter(|_| message.can_be_answered()) else {
            return Step::End(message, Count::DroppedNoSender);
        };
        let reply = match self.begin(from, message.bytes()) {
            Err(refused) => Err(refused),
            Ok(outcome) => {
                let Some(done) = look(&outcome) else {
                    self.waiting.push(Waiting {
                        message,
                        outcome,
                        until: cx.now + PATIENCE,
                    });
                    *cx.wake_at = Some(cx.now + LOOK);
                    return Step::Absorbed;
                };
                done
            }
        };
        write(&mut message, &reply);
        Step::Back(message, Count::Answered)
    }

    fn wake(&mut self, cx: &mut Cx<'_, Message>) {
        let down = self.way.down();
        let also = &mut *cx.also;
        let settled = self.waiting.extract_if(.., |waiting| {
            let late = || Err(format!("no outcome within {} s", PATIENCE.as_secs()));
            let outcome = look(&waiting.outcome);
            let Some(done) = outcome.or_else(|| (cx.now >= waiting.until).then(late)) else {
                return false;
            };
            write(&mut waiting.message, &done);
            true
        });
        also.extend(settled.map(|waiting| (down, waiting.message)));
        *cx.wake_at = (!self.waiting.is_empty()).then(|| cx.now + LOOK);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl ShellStage {
    fn begin(&self, from: SocketAddr, command: &[u8]) -> Result<Receiver<Outcome>, String> {
        if !self.shell.allow.contains(&from.ip()) {
            return Err(format!("{} may not command here", from.ip()));
        }
        let request = parse(command)?;
        if self.waiting.len() == MOST_WAITING {
            return Err(format!(
                "{MOST_WAITING} commands are being worked on; try again"
            ));
        }
        Ok(self.shell.commands.begin(from, request))
    }
}

/// The outcome, if it is there.
fn look(outcome: &Receiver<Outcome>) -> Option<Outcome> {
    match outcome.try_recv() {
        Ok(outcome) => Some(outcome),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(Err(
            "the node dropped the command before it was run".to_owned(),
        )),
    }
}

/// Makes a message the reply, lines of bounded length.
fn write(message: &mut Message, outcome: &Outcome) {
    let (word, text) = match outcome {
        Ok(done) => ("ok", done),
        Err(because) => ("error", because),
    };
    let moves = |c: char| acts_on_terminal(c) && c != '\n';
    let mut lines = format!("{word}: {}", text.trim_end()).replace(moves, " ");
    lines.truncate(lines.floor_char_boundary(REPLY_BYTES - 1));
    lines.push('\n');
    message.resize(lines.len());
    message.bytes_mut().copy_from_slice(lines.as_bytes());
}

/// Reads a command.
///
/// # Errors
///
/// What is wrong with it, and what to write instead, in one line.
pub fn parse(command: &[u8]) -> Result<Request, String> {
    if command.len() > COMMAND_BYTES {
        let len = command.len();
        return Err(format!(
            "a command has {COMMAND_BYTES} bytes at most, not {len}"
        ));
    }
    let Ok(text) = std::str::from_utf8(command) else {
        return Err("a command is a line of UTF-8 text".to_owned());
    };
    let mut words = text.split_ascii_whitespace();
    match words.next() {
        Some("create") => create(words),
        Some("show") => Ok(Request::Show {
            path: one_name("show", words)?,
        }),
        Some("rm") => Ok(Request::Remove {
            path: one_name("rm", words)?,
        }),
        Some(other) => Err(format!(
            "there is no command `{other}`; {}",
            suggest(other, &["create", "show", "rm"])
        )),
        None => Err("the command is empty; available: `create`, `show`, `rm`".to_owned()),
    }
}

/// The only word behind a command.
fn one_name<'t>(
    command: &str,
    mut words: impl Iterator<Item = &'t str>,
) -> Result<Box<str>, String> {
    let path = name(words.next(), &format!("{command} NAME"))?;
    match words.next() {
        None => Ok(path),
        Some(more) => Err(format!("`{command}` takes one name, and no `{more}`")),
    }
}

fn create<'t>(mut words: impl Iterator<Item = &'t str>) -> Result<Request, String> {
    const FORM: &str = "create --module MODULE --name NAME --attr NAME=VALUE";
    const OPTIONS: [&str; 3] = ["--module", "--name", "--attr"];
    let (mut path, mut module, mut attrs, mut given) = (None, None, Attrs::new(), 0);
    while let Some(word) = words.next() {
        // `--attr x=1` and `--attr=x=1`, as any command line has it.
        let (option, joined) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        if !OPTIONS.contains(&option) {
            let near = suggest(option, &OPTIONS);
            return Err(format!("`create` has no option `{option}`; {near}"));
        }
        let Some(value) = joined.or_else(|| words.next()) else {
            return Err(format!("`{option}` needs a value; write {FORM}"));
        };
        if option != "--attr" {
            let named = if option == "--module" {
                &mut module
            } else {
                &mut path
            };
            if named.replace(name(Some(value), FORM)?).is_some() {
                return Err(format!("`{option}` is there twice"));
            }
            continue;
        }
        let Some((attr, value)) = value.split_once('=').filter(|(attr, _)| !attr.is_empty()) else {
            return Err(format!(
                "`{value}` is no attribute; write --attr NAME=VALUE"
            ));
        };
        given += 1;
        if given > MOST_ATTRS {
            return Err(format!("a path has {MOST_ATTRS} attributes at most"));
        }
        if attrs.set(attr.to_owned(), Value::of_text(value)).is_some() {
            return Err(format!("attribute `{attr}` is there twice"));
        }
    }
    let Some(module) = module else {
        return Err(format!("`--module` is missing; write {FORM}"));
    };
    Ok(Request::Create {
        path,
        module,
        attrs,
    })
}

fn name(word: Option<&str>, form: &str) -> Result<Box<str>, String> {
    match word {
        Some(word) if word.len() > NAME_BYTES => {
            Err(format!("a name has {NAME_BYTES} bytes at most"))
        }
        Some(word) if !word.starts_with('-') => Ok(word.into()),
        _ => Err(format!("a name is missing; write {form}")),
    }
}
