//! Messages that nobody has sent: for a promotion that has no live ones to compare, as at the
//! start of a node.
//!
//! Wasmtime and the program that is to be promoted run each over the same memory, which begins as
//! the handler's own is, with its parameters; each message meets the memory that the one before
//! left. They are bytes drawn by a fixed number, so a start is like the one before; a handler that
//! knows its peers refuses most of them, and only what it does then is compared. Live
//! messages say more: `path promote` waits for them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ashway_trial::{Activation, Engine, Setup, Trial};
use ashway_wire::emit::Headers;

use super::{Moment, granted, repeat, replay};
use crate::budget::budget;
use crate::dry_run::{Blueprint, DryRun};
use crate::error::NotPromoted;
use crate::instance::{Allowance, Instance, Promoted};
use crate::programs::NodeMaps;
use crate::version::Version;

/// How long they are, in bytes: around what handlers read of a header, and a full frame.
const LENGTHS: [usize; 12] = [0, 1, 2, 4, 8, 12, 16, 33, 64, 200, 512, 1_472];

/// Translates a version of a handler, loads it for the kernel tier, and has both tiers run
/// made-up messages; a few milliseconds beside [`Instance::promote`], and at most the handler's
/// time for each message and tier. Where there is no memory for that, nothing is compared.
///
/// # Errors
///
/// As [`Instance::promote`]; and the first message with another end.
///
/// # Panics
///
/// If the version was never read.
pub fn promote_rehearsed(
    instance: &Instance,
    node: &NodeMaps,
    version: &Version,
    function: &str,
    allowed: Allowance,
) -> Result<Promoted, NotPromoted> {
    let mut promoted = instance.promote(node, version, function, allowed)?;
    // As large as the program, and of no use behind this.
    if let Some(blueprint) = promoted.blueprint.take() {
        rehearse(instance, version, &blueprint, function, allowed.budget())?;
    }
    Ok(promoted)
}

fn rehearse(
    instance: &Instance,
    version: &Version,
    blueprint: &Blueprint,
    function: &str,
    time: Duration,
) -> Result<(), NotPromoted> {
    let module = version.module();
    let setup = Setup {
        budget: budget(time),
        ..Setup::default()
    };
    let reference = Trial::new(&module, Engine::User, &setup);
    let (Ok(mut reference), Ok(candidate)) = (reference, DryRun::new(blueprint)) else {
        return Ok(());
    };
    let mut exports = module.exports.iter();
    let export = exports.find(|(name, _)| name == function);
    let (_, index) = export.expect("the function was found when the program was made");
    let place = module.functions[*index as usize].at;
    let mut moments = Vec::new();
    // One that comes by a swap begins with a state that nobody has yet.
    let mut before = if version.id == instance.version().id {
        instance.memory.snapshot()
    } else {
        [reference.guest(), reference.state()].concat()
    };
    for message in messages() {
        let front = front(message.len());
        let Ok(end) = repeat(
            &module,
            &mut reference,
            function,
            (&before, &front, &message),
        ) else {
            return Ok(());
        };
        let mut answer = end.activation;
        let result = granted(answer.result, instance, place);
        if result != answer.result {
            answer = Activation {
                result,
                message: message.clone(),
                ..answer
            };
        }
        let next = end.memory.clone();
        moments.push(Moment {
            before: std::mem::replace(&mut before, next),
            front,
            message,
            answer,
            after: end.memory,
        });
    }
    let replayed = replay(
        &module,
        &moments,
        |moment| candidate.run(&moment.before, &moment.front, &moment.message),
        |moment| repeat(&module, &mut reference, function, moment.inputs()),
    );
    match replayed {
        Ok(Err(difference)) => Err(difference.made_up().refused(&version.lines)),
        _ => Ok(()),
    }
}

/// All of them.
fn messages() -> impl Iterator<Item = Vec<u8>> {
    // xorshift64 (Marsaglia 2003).
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    LENGTHS.into_iter().map(move |len| {
        let bytes = (0..len).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        });
        bytes.collect()
    })
}

/// The headers of a datagram with so many bytes, of a sender in a network for documentation
/// (RFC 5737).
fn front(len: usize) -> Vec<u8> {
    let address = |host, port| SocketAddr::new(Ipv4Addr::new(192, 0, 2, host).into(), port);
    let headers = Headers {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: address(1, 49_152),
        destination: address(2, 7),
    };
    let mut frame = vec![0; 42 + len];
    let written = headers.emit(&mut frame, &vec![0; len]);
    written.expect("it has room for a datagram of this length");
    frame.truncate(42);
    frame
}
