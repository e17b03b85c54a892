//! Shows each message to somebody, and passes it on unchanged.
//!
//! What is shown are the bytes at the tap's own layer, in both directions: over
//! `eth` these are packets, over `udp` payloads. [`pcapng`] writes them into a
//! capture file. A node does so into `file`; when that would become longer than
//! `max_bytes` it is renamed to `file.1`, in place of the one before, and begun
//! anew. Whether it can be written is asked when the module is initialised.
//!
//! A small module with all that modules have: copy it to start a new one.
//!
//! * **Services:** `down` and `up`, to what exchanges messages.
//! * **Attributes:** `path` (text, the path's name, for whoever looks; default the
//!   tap's own).
//! * **Verdicts:** none.
//! * **Counters:** none.
//! * **Tiers:** user.
//!
//! ```toml
//! [module.look]
//! kind = "tap"
//! down = "wire.up"
//! up = "ip.down"
//! layer = "network"
//! file = "look.pcapng"
//! ```
//!
//! Source: Mogul, Rashid & Accetta 1987, "The Packet Filter", §5.4: watching a
//! network is a use of its own.

use std::io;
use std::sync::Arc;

use ashway_path::attrs::Attrs;
use ashway_path::module::{Kind, Module, Param, Refused, StageAndNext};
use ashway_path::read::Params;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_path::time::Time;

use crate::Message;
use crate::services;
use crate::way::{Way, through, way_from_top};

pub mod pcapng;

/// The kind.
pub static KIND: Kind = Kind {
    name: "tap",
    about: "shows each message and passes it on",
    services: &services::LINK_LIKE,
    params: &[
        Param {
            name: "layer",
            about: "what is seen there: \"network\" (packets, the default) or \"payload\"",
        },
        Param {
            name: "file",
            about: "the capture file to write, required",
        },
        Param {
            name: "max_bytes",
            about: "longest it becomes, in bytes; there are two at most; default 64 MiB",
        },
    ],
};

/// Attribute: the path's name, set by whoever creates it.
pub const PATH: &str = "path";

/// What to do about a file that cannot be written.
pub const HINT: &str = "name a file that the node may write";

/// Somebody who looks at messages.
pub trait Watch: Send + Sync {
    /// Called when a tap that has it is initialised.
    ///
    /// # Errors
    ///
    /// Why it could keep nothing, with what cannot be written.
    fn ready(&self) -> io::Result<()> {
        Ok(())
    }

    /// Called for each message, by whoever runs the path: copy what is to be
    /// kept, and do not wait.
    fn see(&self, seen: &Seen<'_>);
}

/// A message as a tap sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// When.
    pub at: Time,
    /// Which way it goes.
    pub bound: Bound,
    /// The path's name; shared, because it is the same each time.
    pub path: &'a Arc<str>,
    /// The tap's name.
    pub tap: &'a str,
    /// What the bytes are.
    pub layer: Layer,
    /// All bytes of the message at this layer.
    pub bytes: &'a [u8],
}

/// Which way a message goes, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Up: it came from the network.
    Inbound,
    /// Down: it goes there.
    Outbound,
}

/// What a message's bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// An Ethernet header.
    Link,
    /// An IPv4 or IPv6 header.
    Network,
    /// Anything else.
    Payload,
}

/// A tap.
#[derive(Clone)]
pub struct Tap {
    /// The module's name.
    pub name: Box<str>,
    /// The layer it stands at.
    pub layer: Layer,
    /// Who looks.
    pub watch: Arc<dyn Watch>,
}

/// Where what a tap sees is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The file, as the configuration has it.
    pub file: String,
    /// Longest it becomes, in bytes.
    pub max_bytes: u64,
}

impl Target {
    /// [`Self::max_bytes`] where nobody says.
    pub const MAX_BYTES: u64 = 64 << 20;
    /// The least of it that can be said: room for some messages of any length.
    pub const LEAST_BYTES: u64 = 1 << 20;
}

impl Tap {
    /// Makes it from its section of a configuration; mistakes are noted. `watch`
    /// gives who writes.
    ///
    /// # Errors
    ///
    /// In `watch`: why that cannot be written, and what to do about it.
    pub fn read(
        name: Box<str>,
        params: &mut Params<'_>,
        watch: impl FnOnce(&Target) -> Result<Arc<dyn Watch>, (String, String)>,
    ) -> Option<Self> {
        let word: Option<String> = params.optional("layer");
        let layer = match word.as_deref() {
            None | Some("network") => Layer::Network,
            Some("payload") => Layer::Payload,
            Some(other) => {
                let message = format!("there is no layer `{other}`");
                params.refuse("layer", &message, "available: `network`, `payload`");
                Layer::Payload
            }
        };
        let max_bytes = params.optional("max_bytes").unwrap_or(Target::MAX_BYTES);
        if max_bytes < Target::LEAST_BYTES {
            let message = format!("`max_bytes` is {max_bytes}, and too small for a capture");
            let hint = format!("give it {} (1 MiB) or more", Target::LEAST_BYTES);
            params.refuse("max_bytes", &message, &hint);
            return None;
        }
        let file = params.required("file")?;
        match watch(&Target { file, max_bytes }) {
            Ok(watch) => Some(Self { name, layer, watch }),
            Err((message, hint)) => {
                params.refuse("file", &message, &hint);
                None
            }
        }
    }
}

impl Module<Message> for Tap {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn init(&mut self) -> Result<(), Refused> {
        self.watch.ready().map_err(|error| Refused {
            because: error.to_string(),
            hint: HINT.to_owned(),
        })
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        Ok(StageAndNext {
            stage: Box::new(TapStage {
                path: attrs.text(PATH).unwrap_or(&self.name).into(),
                tap: self.clone(),
                way: way_from_top(entered),
            }),
            next: through(entered),
        })
    }
}

struct TapStage {
    path: Arc<str>,
    tap: Tap,
    way: Way,
}

impl Stage<Message> for TapStage {
    fn name(&self) -> &str {
        &self.tap.name
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn traits(&self) -> Traits {
        Traits {
            reads_clock: true,
            ..Traits::default()
        }
    }

    fn take(
        &mut self,
        message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        self.tap.watch.see(&Seen {
            at: cx.now,
            bound: if self.way.is_up(direction) {
                Bound::Inbound
            } else {
                Bound::Outbound
            },
            path: &self.path,
            tap: &self.tap.name,
            layer: self.tap.layer,
            bytes: message.bytes(),
        });
        Step::On(message)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
