//! Fragments of IP packets: made on the way down, put together on the way up.
//!
//! Stands between a link and IP. A packet longer than the link's MTU leaves as
//! fragments. On the short and wide path that begins here (`fragment` over
//! `eth`, where demux sends all fragments of an interface) whole packets leave
//! at the top, with their headers, to be classified again: only then are their
//! ports known. A path that goes on to IP leaves fragments to IP, which drops
//! them, unless `reassemble` is 1.
//!
//! * **Services:** `down`, to a link; `up`, to IP.
//! * **Attributes:** `mtu` (bytes, from the link; without it nothing is cut);
//!   `longest` (bytes: no packet of the path is longer, IP's header included;
//!   whoever gives it vouches for it); `reassemble` (0 or 1, 1 where a path
//!   begins here); `reassembly_bytes` and `reassembly_datagrams` (limits of this
//!   path, default the module's); publishes `reassembly_failed` (datagrams given
//!   up).
//! * **Verdicts:** `Absorbed`; `DroppedFragment` for a fragment that overlaps
//!   others, comes twice, or belongs to a datagram that was given up;
//!   `DroppedBadLength`, `DroppedBadIpChecksum`; `DroppedTooLong` for a packet
//!   that no fragments can carry.
//! * **Tiers:** user; as long as it does not reassemble there is nothing to do
//!   for it inbound.
//!
//! ```toml
//! [module.frag]
//! kind = "fragment"
//! down = "wire.up"
//! up   = "ip.down"
//! ```
//!
//! Source: RFC 791 §3.2, RFC 8200 §4.5, RFC 5722 (an overlap ends the whole
//! datagram; here for IPv4 as well), RFC 6946, RFC 7112, RFC 1122 §3.3.2 (60 s).
//! What we do differently: no ICMP message is sent; fragments of our own packets
//! are made even if their header says "don't", which an answer has from its
//! request; the ECN bits are those of the first fragment, not RFC 3168's sum.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ashway_abi::Count;
use ashway_path::attrs::{Attrs, names};
use ashway_path::module::{Kind, Module, Next, Param, Refused, StageAndNext};
use ashway_path::service::Service;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_wire::Headers;

use crate::Message;
use crate::services::{LINK, NET};
use crate::way::{Way, way};

mod cut;
mod join;
mod packet;

use join::Reassembly;

/// The kind.
pub static KIND: Kind = Kind {
    name: "fragment",
    about: "cuts IP packets that are too long, puts fragments together",
    services: &[
        Service {
            name: "up",
            provides: &LINK,
            requires: &NET,
            after: false,
        },
        Service {
            name: "down",
            provides: &NET,
            requires: &LINK,
            after: true,
        },
    ],
    params: &[
        Param {
            name: REASSEMBLY_BYTES,
            about: "most bytes that parts of datagrams may take on a path, default 262144",
        },
        Param {
            name: REASSEMBLY_DATAGRAMS,
            about: "most datagrams that may be incomplete on a path, default 64",
        },
    ],
};

const UP: usize = 0;
const DOWN: usize = 1;

/// Attribute: longest packet of the path in bytes, IP's header included.
pub const LONGEST: &str = "longest";
/// Attribute: whether fragments that come in are put together.
pub const REASSEMBLE: &str = "reassemble";
/// Attribute and parameter: most bytes of incomplete datagrams.
pub const REASSEMBLY_BYTES: &str = "reassembly_bytes";
/// Attribute and parameter: most incomplete datagrams.
pub const REASSEMBLY_DATAGRAMS: &str = "reassembly_datagrams";
/// Attribute: datagrams given up: timed out, inconsistent, or crowded out.
pub const REASSEMBLY_FAILED: &str = "reassembly_failed";

/// Smallest MTU of any link under IPv4 (RFC 791 §3.2).
const LEAST_MTU: u64 = 68;

/// Least memory for reassembly: one datagram of the least size that every host
/// takes (RFC 791 §3.1, 576 bytes) in many parts.
const LEAST_BYTES: usize = 8 << 10;

/// What incomplete datagrams of one path may take. When it is used up, the
/// oldest is given up for the newest: an honest sender's fragments follow each
/// other closely, so that only senders that never finish grow old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, bookkeeping included.
    pub bytes: usize,
    /// Datagrams.
    pub datagrams: usize,
}

/// Four datagrams of the largest size, or 64 smaller ones.
impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 256 << 10,
            datagrams: 64,
        }
    }
}

impl Limits {
    /// Whether anything can be put together within them; else which is too low,
    /// why, and what to do.
    pub(crate) fn check(self) -> Result<(), (&'static str, String, String)> {
        for (name, given, least) in [
            (REASSEMBLY_BYTES, self.bytes, LEAST_BYTES),
            (REASSEMBLY_DATAGRAMS, self.datagrams, 1),
        ] {
            if given < least {
                let because = format!("`{name}` is {given}, too little for any datagram");
                return Err((name, because, format!("give at least {least}")));
            }
        }
        Ok(())
    }
}

/// A host's fragmentation over one link.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// The module's name.
    pub name: Arc<str>,
    /// What each path may hold.
    pub limits: Limits,
    /// The last packet's identification. One for all paths and modules of a
    /// host, because senders are told apart by address only; best begun at a
    /// number that cannot be guessed (RFC 7739).
    pub identification: Arc<AtomicU32>,
}

impl Module<Message> for Fragment {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        let limit = |name, default| {
            let number = attrs.number(name).map(usize::try_from);
            number.unwrap_or(Ok(default)).unwrap_or(usize::MAX)
        };
        let limits = Limits {
            bytes: limit(REASSEMBLY_BYTES, self.limits.bytes),
            datagrams: limit(REASSEMBLY_DATAGRAMS, self.limits.datagrams),
        };
        if entered.is_none() {
            attrs.set(REASSEMBLE, 1);
        }
        let reassembles = attrs.number(REASSEMBLE) == Some(1);
        limits
            .check()
            .map_err(|(_, because, hint)| Refused { because, hint })?;
        Ok(StageAndNext {
            stage: Box::new(FragmentStage {
                module: self.name.clone(),
                // Creation that begins here begins at the top.
                way: way(entered.or(Some(UP)), UP),
                mtu: usize::MAX,
                identification: Arc::clone(&self.identification),
                reassembly: reassembles.then(|| Reassembly::new(limits)),
            }),
            next: Next::Through(if entered == Some(DOWN) { UP } else { DOWN }),
        })
    }
}

/// The frames that a received one was put together from: in their order, with the
/// same number, and cut where the longest was; the same as they came, if their sender
/// cut them alike. For the host's stack, which takes a long datagram in no other way,
/// and which makes no more of it than if nobody had put it together in between (as
/// Linux has it when it forwards, `frag_max_size`). Empty if it came in one part; the
/// frame as it came is left in the message. Allocates each.
#[must_use]
pub fn apart(message: &mut Message) -> Vec<Message> {
    message.rewind();
    let Some(parts) = message.meta.parts else {
        return Vec::new();
    };
    let link = usize::from(Headers::parse(message.bytes()).l3);
    message.meta.eth = message.pop(link);
    let pieces = cut::cut(message, parts.longest as usize, parts.identification);
    let mut pieces = pieces.unwrap_or_default();
    for piece in &mut pieces {
        piece.rewind();
        piece.meta.parts = None;
    }
    message.rewind();
    pieces
}

struct FragmentStage {
    module: Arc<str>,
    way: Way,
    mtu: usize,
    identification: Arc<AtomicU32>,
    reassembly: Option<Reassembly>,
}

impl Stage<Message> for FragmentStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn traits(&self) -> Traits {
        Traits {
            in_entry: self.reassembly.is_none(),
            reads_clock: self.reassembly.is_some(),
            ..Traits::default()
        }
    }

    fn memory_bytes(&self) -> usize {
        self.reassembly
            .as_ref()
            .map_or(0, |reassembly| reassembly.limits().bytes)
    }

    fn establish(&mut self, attrs: &mut Attrs) -> Result<(), String> {
        let Some(mtu) = attrs.number(names::MTU) else {
            return Ok(());
        };
        if mtu < LEAST_MTU {
            return Err(format!(
                "`mtu` is {mtu} bytes, and fragments need {LEAST_MTU}"
            ));
        }
        self.mtu = usize::try_from(mtu).unwrap_or(usize::MAX);
        Ok(())
    }

    fn destroy(&mut self) {
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.clear();
        }
    }

    fn take(
        &mut self,
        message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if !self.way.is_up(direction) {
            return self.down(message, direction, cx);
        }
        match &mut self.reassembly {
            Some(reassembly) => {
                let step = reassembly.take(message, cx.now);
                note(reassembly, cx);
                step
            }
            None => Step::On(message),
        }
    }

    fn wake(&mut self, cx: &mut Cx<'_, Message>) {
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.expire(cx.now);
            note(reassembly, cx);
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl FragmentStage {
    fn down(
        &self,
        message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if message.len() <= self.mtu {
            return Step::On(message);
        }
        let identification = self.identification.fetch_add(1, Ordering::Relaxed);
        let pieces = cut::cut(&message, self.mtu, identification);
        let mut pieces = pieces.unwrap_or_default().into_iter();
        let Some(first) = pieces.next() else {
            return Step::End(message, Count::DroppedTooLong);
        };
        cx.also.extend(pieces.map(|piece| (direction, piece)));
        Step::On(first)
    }
}

/// Says when to be woken, and what became of datagrams.
fn note(reassembly: &Reassembly, cx: &mut Cx<'_, Message>) {
    *cx.wake_at = reassembly.deadline();
    let failed = reassembly.failed();
    if failed > 0 && cx.attrs.number(REASSEMBLY_FAILED) != Some(failed) {
        cx.attrs.set(REASSEMBLY_FAILED, failed);
    }
}
