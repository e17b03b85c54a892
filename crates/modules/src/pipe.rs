//! Passes what messages carry through a list of pipes: checksums, masks, byte order.
//!
//! What comes up passes `list`, what goes down passes `answers`. Each message begins
//! with the registers' first values. Where the module stands directly above UDP, on a
//! path whose checksums are verified in the user tier, verifying becomes part of the
//! same pass ([`FUSE_CHECKSUM`](crate::rules::FUSE_CHECKSUM)).
//!
//! The host gets what it is given behind this module as it is by then: changed bytes no
//! longer fit its checksums.
//!
//! * **Services:** `down` and `up`, to what exchanges messages.
//! * **Attributes:** `fuse` (`on` or `off`, default `on`: whether the rule may fuse).
//!   Published: `MODULE.PIPE.REGISTER`, what each register of `list` that changes held
//!   behind the last message.
//! * **Verdicts:** none.
//! * **Counters:** none.
//! * **Tiers:** user.
//!
//! ```toml
//! [module.unmask]
//! kind = "pipe"
//! down = "udp.up"
//! list = "xor(0xdeadbeef) | bswap32"
//! answers = "bswap32 | xor(0xdeadbeef)"
//! ```
//!
//! Source: Wallach, Engler & Kaashoek 1997 ("ASH"), §II.B, for pipes; Mosberger &
//! Peterson 1996 ("Scout"), §2.2, for fusing them with the stage below.

use std::ops::Range;
use std::sync::Arc;

use ashway_path::attrs::Attrs;
use ashway_path::module::{Kind, Module, Param, Refused, StageAndNext};
use ashway_path::read::Params;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_wire::checksum::Sum;

use crate::Message;
use crate::bug::{self, Bug};
use crate::services;
use crate::way::{Way, through, way_from_top};

/// The kind.
pub static KIND: Kind = Kind {
    name: "pipe",
    about: "passes messages through a list of pipes",
    services: &services::BETWEEN,
    params: &[
        Param {
            name: "list",
            about: "the pipes that what comes up passes, required",
        },
        Param {
            name: "answers",
            about: "those that what goes down passes; none without it",
        },
    ],
};

/// Attribute: whether checksums may be verified in the same pass, `on` or `off`.
pub const FUSE: &str = "fuse";

/// Code of a list.
pub trait RunList: Send + Sync {
    /// Runs `data` in place. `registers` are as many as the list has. Linear in the
    /// data; allocates nothing.
    fn in_place(&self, registers: &mut [u64], data: &mut [u8]);

    /// Runs `source` to `destination`, which is as long.
    fn across(&self, registers: &mut [u64], source: &[u8], destination: &mut [u8]);
}

/// A list of pipes that can run.
#[derive(Clone)]
pub struct List {
    /// Its registers.
    pub registers: Vec<Register>,
    /// Whether data comes out changed.
    pub modifies: bool,
    /// Its code.
    pub code: Arc<dyn RunList>,
}

/// A register of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its name in the list: `crc32.state`.
    pub name: String,
    /// What it holds before a message.
    pub initial: u64,
    /// Whether messages change it.
    pub changes: bool,
}

/// Makes lists of texts.
pub trait Compile {
    /// The list of this text.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to do about it.
    fn list(&self, text: &str) -> Result<List, (String, String)>;

    /// The same with the Internet checksum in front, whose register is the first.
    /// `None` if there is no such list, or it would not run in one pass with it.
    fn summed(&self, text: &str) -> Option<List>;
}

/// A module that runs pipes.
#[derive(Clone)]
pub struct Pipe {
    /// The module's name.
    pub name: Arc<str>,
    /// What it runs.
    pub lists: Arc<Lists>,
}

/// What a module runs.
pub struct Lists {
    /// What comes up passes this.
    pub up: List,
    /// Or this, if its checksum is to be verified.
    pub summed: Option<List>,
    /// What goes down passes this.
    pub down: Option<List>,
}

impl Pipe {
    /// Makes it from its section of a configuration; mistakes are noted.
    pub fn read(name: Arc<str>, params: &mut Params<'_>, compile: &impl Compile) -> Option<Self> {
        let text: Option<String> = params.required("list");
        let answers: Option<String> = params.optional("answers");
        let mut list = |key: &str, text: &Option<String>| {
            let made = compile.list(text.as_deref()?);
            made.map_err(|(message, hint)| params.refuse(key, &message, &hint))
                .ok()
        };
        let (up, down) = (list("list", &text), list("answers", &answers));
        let lists = Lists {
            up: up?,
            summed: compile.summed(&text?),
            down,
        };
        Some(Self {
            name,
            lists: Arc::new(lists),
        })
    }
}

impl Module<Message> for Pipe {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        let registers = self.lists.up.registers.iter().enumerate();
        let published: Vec<(usize, String)> = registers
            .filter(|(_, register)| register.changes)
            .map(|(at, register)| (at, format!("{}.{}", self.name, register.name)))
            .collect();
        for (_, name) in &published {
            attrs.set(name.clone(), 0);
        }
        Ok(StageAndNext {
            stage: Box::new(PipeStage {
                module: self.name.clone(),
                way: way_from_top(entered),
                lists: Arc::clone(&self.lists),
                registers: Vec::new(),
                published,
            }),
            next: through(entered),
        })
    }
}

/// The stage.
#[derive(Clone)]
pub(crate) struct PipeStage {
    module: Arc<str>,
    pub(crate) way: Way,
    pub(crate) lists: Arc<Lists>,
    /// What a run works on.
    registers: Vec<u64>,
    /// Registers of the list that changes what comes up, and the attributes that say
    /// what they held.
    published: Vec<(usize, String)>,
}

impl Stage<Message> for PipeStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn traits(&self) -> Traits {
        Traits {
            touches_data: true,
            fuses: self.lists.summed.is_some(),
            ..Traits::default()
        }
    }

    fn take(
        &mut self,
        mut message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if self.way.is_up(direction) {
            let list = &self.lists.up;
            list.begin(&mut self.registers);
            list.code.in_place(&mut self.registers, message.bytes_mut());
            self.publish(0, cx.attrs);
        } else if let Some(list) = &self.lists.down {
            list.begin(&mut self.registers);
            list.code.in_place(&mut self.registers, message.bytes_mut());
        }
        Step::On(message)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl List {
    /// What registers hold before a message.
    fn begin(&self, registers: &mut Vec<u64>) {
        registers.clear();
        registers.extend(self.registers.iter().map(|register| register.initial));
    }
}

impl PipeStage {
    /// Says what registers hold behind a message; `first` is the number of the list's
    /// first.
    fn publish(&self, first: usize, attrs: &mut Attrs) {
        for (at, name) in &self.published {
            attrs.renew(name, self.registers[first + at]);
        }
    }

    /// Passes the part of a message that UDP carries through the list, and verifies
    /// UDP's checksum in the same pass; `before` is the sum of all else that it is over.
    /// False if it is wrong: nothing has changed then, and nobody sees what came out.
    pub(crate) fn verify(
        &mut self,
        message: &mut Message,
        payload: Range<usize>,
        before: Sum,
        attrs: &mut Attrs,
    ) -> bool {
        let Some(list) = &self.lists.summed else {
            return false;
        };
        list.begin(&mut self.registers);
        let registers = &mut self.registers[..];
        // Pipes sum little-endian words (RFC 1071 §2(B): the same sum, swapped).
        registers[0] = before.fold().swap_bytes().into();
        let is_right = |sum: u64| sum == 0xffff || bug::is(Bug::SumIgnored);
        let right = if list.modifies {
            message.rewrite(payload, |source, destination| {
                list.code.across(registers, source, destination);
                is_right(registers[0]) || bug::is(Bug::SeenBeforeSum)
            }) && is_right(registers[0])
        } else {
            let data = &mut message.bytes_mut()[payload];
            list.code.in_place(registers, data);
            is_right(registers[0])
        };
        if right {
            self.publish(1, attrs);
        }
        right
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
