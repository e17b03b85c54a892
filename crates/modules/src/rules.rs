//! The rules that know protocols.
//!
//! [`RULES`] is the whole set that a node applies, the generic ones of
//! [`ashway_path::rules`] among them, in the order in which they are tried. A
//! rule changes what a path costs, never what it does: each has a test that
//! sends the same frames, good and bad, with and without it, and compares fates
//! and bytes.
//!
//! Each step takes a stage away, or a queue, or brings attributes to the only
//! value with which its guard is false. So the set comes to an end.
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), §2.2 and §3.3.

use std::ops::Range;

use ashway_path::attrs::names;
use ashway_path::module::Kind;
use ashway_path::path::Path;
use ashway_path::rules::Rule;
use ashway_path::stage::Stage;

use crate::datagram::DatagramStage;
use crate::{Message, datagram, eth, fragment, handler, ip, ipv4, ipv6, pipe, relay, udp};

/// Attribute: the position of the stage at which messages of the forward
/// direction go on behind the entry program. Set by the rule [`ENTRY`].
pub const INJECT_FORWARD: &str = "inject_forward";
/// The same for the backward direction.
pub const INJECT_BACKWARD: &str = "inject_backward";

/// Attribute: how many stages of the forward direction the kernel tier does, if the
/// shell lets it. Set by the rule [`PROMOTE`].
pub const PROMOTE_FORWARD: &str = "promote_forward";
/// The same for the backward direction.
pub const PROMOTE_BACKWARD: &str = "promote_backward";

/// The whole set.
pub static RULES: [Rule<Message>; 7] = [
    Rule::LEAVE_OUT_IDLE,
    Rule::LEAVE_OUT_QUEUES,
    NO_FRAGMENTATION,
    MERGE_LENGTH_CHECKS,
    FUSE_CHECKSUM,
    ENTRY,
    PROMOTE,
];

/// Leaves out `fragment` where no packet can be longer than `mtu`: the attribute
/// `longest` is there and not above it.
pub const NO_FRAGMENTATION: Rule<Message> = Rule {
    name: "no-fragmentation",
    about: "leaves out `fragment` where every packet fits",
    guard: |path| {
        let (longest, mtu) = (
            path.attrs().number(fragment::LONGEST)?,
            path.attrs().number(names::MTU)?,
        );
        let reassembles = path.attrs().number(fragment::REASSEMBLE) == Some(1);
        if longest > mtu || reassembles || path.len() == 1 {
            return None;
        }
        let at = path
            .stages()
            .position(|stage| is(stage, &[&fragment::KIND]))?;
        Some(at..at + 1)
    },
    rewrite: |path, stages| {
        let replaced = path.replace(stages, Vec::new());
        replaced.map_err(|error| error.to_string())
    },
};

/// Makes one stage of Ethernet, IP and UDP that stand directly behind each
/// other: [`datagram`](crate::datagram).
pub const MERGE_LENGTH_CHECKS: Rule<Message> = Rule {
    name: "merge-length-checks",
    about: "checks the lengths of Ethernet, IP and UDP at once",
    guard: |path| {
        let stages = path.stages();
        let mut threes = stages.zip(path.stages().skip(1)).zip(path.stages().skip(2));
        let at = threes.position(|((first, second), third)| {
            let (bottom, top) = (&[&eth::KIND][..], &[&udp::KIND][..]);
            is(second, &[&ip::KIND, &ipv4::KIND, &ipv6::KIND])
                && (is(first, bottom) && is(third, top) || is(first, top) && is(third, bottom))
        })?;
        Some(at..at + 3)
    },
    rewrite: |path, stages| {
        let merged = merge(path, stages.clone()).ok_or("the stages are not what they say")?;
        let replaced = path.replace(stages, vec![Box::new(merged)]);
        replaced.map_err(|error| error.to_string())
    },
};

fn merge(path: &mut Path<Message>, stages: Range<usize>) -> Option<DatagramStage> {
    let (mut eth, mut ip, mut udp) = (None, None, None);
    for at in stages {
        eth = eth.or_else(|| path.stage_as::<eth::EthStage>(at).cloned());
        ip = ip.or_else(|| path.stage_as::<ip::IpStage>(at).cloned());
        udp = udp.or_else(|| path.stage_as::<udp::UdpStage>(at).cloned());
    }
    Some(DatagramStage {
        eth: eth?,
        ip: ip?,
        udp: udp?,
        pipe: None,
    })
}

/// Makes one pass of verifying UDP's checksum and a [`pipe`] that stands directly above
/// the [merged](MERGE_LENGTH_CHECKS) stage. Not where the entry program has verified it
/// before: on a path that ends in a handler, at an interface with XDP. Not with the
/// attribute `fuse=off`.
pub const FUSE_CHECKSUM: Rule<Message> = Rule {
    name: "fuse-checksum",
    about: "verifies UDP's checksum in the pass of the pipe above it",
    guard: |path| {
        let has_pipe = path.stages().any(|stage| is(stage, &[&pipe::KIND]));
        if !has_pipe || path.attrs().text(pipe::FUSE) == Some("off") {
            return None;
        }
        let stages: Vec<_> = path.stages().collect();
        let ends_in_handler = stages.iter().any(|stage| is(*stage, &[&handler::KIND]));
        let at = stages.windows(2).position(|two| {
            let below = match (is(two[0], &[&pipe::KIND]), is(two[1], &[&pipe::KIND])) {
                (true, false) => two[1],
                (false, true) => two[0],
                _ => return false,
            };
            let verified = ends_in_handler && below.traits().in_entry;
            // It says so itself whether there is such a list.
            let fuses = two.iter().any(|stage| stage.traits().fuses);
            is(below, &[&datagram::KIND]) && fuses && !verified
        })?;
        Some(at..at + 2)
    },
    rewrite: |path, stages| {
        let fused = fuse(path, stages.clone()).ok_or("the stages are not what they say")?;
        let replaced = path.replace(stages, vec![Box::new(fused)]);
        replaced.map_err(|error| error.to_string())
    },
};

fn fuse(path: &mut Path<Message>, stages: Range<usize>) -> Option<DatagramStage> {
    let (mut below, mut above) = (None, None);
    for at in stages {
        let parts = |stage: &mut DatagramStage| {
            let (eth, ip, udp) = (stage.eth.clone(), stage.ip.clone(), stage.udp.clone());
            (eth, ip, udp)
        };
        below = below.or_else(|| path.stage_as::<DatagramStage>(at).map(parts));
        above = above.or_else(|| path.stage_as::<pipe::PipeStage>(at).cloned());
    }
    let ((eth, ip, udp), stage) = below.zip(above)?;
    Some(DatagramStage {
        eth,
        ip,
        udp,
        pipe: Some(stage),
    })
}

/// Marks how much of the path an entry program does for messages that come in:
/// they go on at the stage that [`INJECT_FORWARD`] or [`INJECT_BACKWARD`] says,
/// having been [entered](crate::message::Body::enter). Where another stage stands
/// between the link and UDP there is no mark: that stage is to see whole packets, so
/// messages go on at the link.
pub const ENTRY: Rule<Message> = Rule {
    name: "entry",
    about: "leaves the first stages to the kernel tier's entry program",
    guard: |path| {
        let last = path.len().checked_sub(1)?;
        match marks(path) {
            [(_, wanted), _] if wanted != mark(path, INJECT_FORWARD) => Some(0..1),
            [_, (_, wanted)] if wanted != mark(path, INJECT_BACKWARD) => Some(last..last + 1),
            _ => None,
        }
    },
    rewrite: |path, _| {
        for (name, wanted) in marks(path) {
            match wanted {
                Some(at) => drop(path.attrs_mut().set(name, at)),
                None => drop(path.attrs_mut().remove(name)),
            }
        }
        Ok(())
    },
};

/// Marks how much of the path the program behind its slot can do. Of a
/// [relay](crate::relay) that is all of it, in each direction that begins at a link
/// with an entry program; other paths end in a handler, which is promoted for
/// itself.
pub const PROMOTE: Rule<Message> = Rule {
    name: "promote",
    about: "leaves the stages to the kernel tier that it can do",
    guard: |path| {
        let last = path.len().checked_sub(1)?;
        let is_wrong = |(name, wanted)| wanted != mark(path, name);
        promotable(path)
            .into_iter()
            .any(is_wrong)
            .then_some(0..last + 1)
    },
    rewrite: |path, _| {
        for (name, wanted) in promotable(path) {
            match wanted {
                Some(stages) => drop(path.attrs_mut().set(name, stages)),
                None => drop(path.attrs_mut().remove(name)),
            }
        }
        Ok(())
    },
};

/// What both attributes of [`PROMOTE`] ought to be.
fn promotable(path: &Path<Message>) -> [(&'static str, Option<u64>); 2] {
    let all = path.len() as u64;
    let fits = relay::is_whole(path);
    let in_entry = |link: Option<&dyn Stage<Message>>| link.is_some_and(|l| l.traits().in_entry);
    [
        (PROMOTE_FORWARD, in_entry(path.stages().next())),
        (PROMOTE_BACKWARD, in_entry(path.stages().last())),
    ]
    .map(|(name, in_entry)| (name, (fits && in_entry).then_some(all)))
}

/// What both attributes ought to be.
fn marks(path: &Path<Message>) -> [(&'static str, Option<u64>); 2] {
    let last = path.len().wrapping_sub(1);
    [
        (INJECT_FORWARD, entered(path.stages())),
        (
            INJECT_BACKWARD,
            entered(path.stages().rev()).map(|entered| last - entered),
        ),
    ]
    .map(|(name, at)| (name, at.map(|at| at as u64)))
}

/// How many stages from a path's end an entry program does; none if it would be
/// all of them, because then nobody is left to take the message. It hands over
/// what UDP carries, so the last that it does is UDP's.
fn entered<'p>(stages: impl Iterator<Item = &'p dyn Stage<Message>>) -> Option<usize> {
    let mut stages = stages.peekable();
    if !eth::is_link(*stages.peek()?) {
        return None;
    }
    let mut at_payload = false;
    for (done, stage) in stages.enumerate() {
        if !stage.traits().in_entry {
            return at_payload.then_some(done);
        }
        at_payload = is(stage, &[&udp::KIND, &datagram::KIND]);
    }
    None
}

fn mark(path: &Path<Message>, name: &str) -> Option<u64> {
    path.attrs().number(name)
}

fn is(stage: &dyn Stage<Message>, kinds: &[&'static Kind]) -> bool {
    let kind = stage.kind();
    kind.is_some_and(|kind| kinds.iter().any(|wanted| std::ptr::eq(*wanted, kind)))
}
