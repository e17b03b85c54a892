//! Whether two tiers agree.

use ashway_abi::Cause;
use ashway_codegen::normalise::Module;
use ashway_trial::{Activation, Engine};

use super::super::hex::lower_hex;
use super::Part;
use super::shown::verdict;

/// Two tiers do not agree.
pub(super) struct Difference {
    pub(super) packet: Option<usize>,
    pub(super) what: &'static str,
    pub(super) found: [(Engine, String); 2],
}

/// What comparing two tiers came to.
pub(super) enum Comparison {
    Same,
    Differ(Difference),
    /// The time ran out in one of them, which is the clock's choice: nothing
    /// behind it can be compared.
    OutOfTime {
        packet: usize,
        engine: Engine,
    },
}

/// Compares up to the first thing in which two tiers differ.
pub(super) fn compare(module: &Module<'_>, one: &Part<'_>, other: &Part<'_>) -> Comparison {
    let engines = [one.engine, other.engine];
    let differ = |packet, what, found: [String; 2]| {
        let [first, second] = found;
        Comparison::Differ(Difference {
            packet,
            what,
            found: [(engines[0], first), (engines[1], second)],
        })
    };
    for (index, pair) in one.activations.iter().zip(&other.activations).enumerate() {
        let (Some(a), Some(b)) = pair else { continue };
        let packet = Some(index + 1);
        let timed = |x: &&Activation| x.result.is_err_and(|s| s.cause == Cause::Time);
        if let Some(late) = [a, b].iter().position(timed) {
            return Comparison::OutOfTime {
                packet: index + 1,
                engine: engines[late],
            };
        }
        if !ashway_trial::same_end(engines, &a.result, &b.result) {
            return differ(packet, "verdict", [a, b].map(|x| verdict(module, x)));
        }
        if a.message != b.message {
            return differ(packet, "message", [a, b].map(|x| lower_hex(&x.message)));
        }
        if a.dirty != b.dirty {
            let found = [a, b].map(|x| if x.dirty { "changed" } else { "unchanged" }.to_owned());
            return differ(packet, "state of the message", found);
        }
        if a.fuel_left != b.fuel_left {
            let found = [a, b].map(|x| format!("{} units left", x.fuel_left));
            return differ(packet, "fuel", found);
        }
    }
    for (what, a, b) in [
        ("guest memory", &one.guest, &other.guest),
        ("state memory", &one.state, &other.state),
    ] {
        if let Some(at) = a.iter().zip(b).position(|(a, b)| a != b) {
            let found = [a, b].map(|bytes| format!("{:02x} at {at:#x}", bytes[at]));
            return differ(None, what, found);
        }
    }
    Comparison::Same
}
