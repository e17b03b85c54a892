//! One thing that is done when a node is brought to another configuration, and why one
//! cannot be.

use std::fmt;

/// What is done with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// It goes.
    Remove,
    /// It goes, and comes as the file says it.
    Change,
    /// A handler's next version takes over, with its state.
    Swap,
    /// A path changes its tier, or an interface its hook.
    Move,
    /// A path is at other interfaces.
    Reach,
    /// It comes.
    Create,
    /// It is in no file, and stays.
    Stay,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// `[iface.*]`.
    Iface,
    /// `[domain.*]`.
    Domain,
    /// `[handler.*]`.
    Handler,
    /// `[module.*]`.
    Module,
    /// `[path.*]`.
    Path,
}

/// One thing that is done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// To what.
    pub what: What,
    /// What.
    pub act: Act,
    /// Its name.
    pub name: String,
    /// Its line in the next configuration; 0 if it has none.
    pub line: usize,
    /// The keys of its section that say something else.
    pub keys: Vec<&'static str>,
    /// Why else.
    pub because: Option<String>,
}

/// Why it cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The line at fault in the next configuration; 0 if none is.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// The next step.
    pub hint: String,
}

impl Act {
    /// The word of the control socket.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Change => "change",
            Self::Swap => "swap",
            Self::Move => "move",
            Self::Reach => "reach",
            Self::Create => "create",
            Self::Stay => "stay",
        }
    }
}

impl What {
    /// The word of the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Iface => "iface",
            Self::Domain => "domain",
            Self::Handler => "handler",
            Self::Module => "module",
            Self::Path => "path",
        }
    }
}

impl Mistake {
    /// One in this line; 0 for what is of no line.
    #[must_use]
    pub fn new(line: usize, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
            hint: hint.into(),
        }
    }
}

/// As a plan has it.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = self.act.word();
        write!(f, "{act:<6} {} {}", self.what.word(), self.name)?;
        let keys: Vec<_> = self.keys.iter().map(|key| format!("`{key}`")).collect();
        let says = match (self.what, self.act) {
            (What::Iface, Act::Create) => "taken",
            (What::Iface, Act::Remove) => "left: its messages are the host's",
            (What::Handler, Act::Create) => "loaded; its memory begins",
            (What::Handler, Act::Remove) => "unloaded; its memory ends",
            (What::Handler, Act::Change) => "loaded anew, its memory begins anew",
            (What::Handler, Act::Swap) => "the next version takes over the state that it declares",
            (What::Module, Act::Change) => "made anew, what it knows begins anew",
            (What::Path, Act::Change) => {
                "removed and created: in between its messages are the host's"
            }
            (What::Path | What::Iface, Act::Move) => "nothing is lost",
            (What::Path, Act::Reach) => "it goes on, at other interfaces",
            (_, Act::Stay) => "it is in no file",
            _ => "",
        };
        let why = self.because.iter().cloned();
        let why = why.chain((!keys.is_empty()).then(|| keys.join(", ")));
        let why: Vec<_> = why.collect();
        match (&why[..], says) {
            ([], "") => Ok(()),
            ([], says) => write!(f, ": {says}"),
            (why, "") => write!(f, ": {}", why.join("; ")),
            (why, says) => write!(f, ": {}; {says}", why.join("; ")),
        }
    }
}
