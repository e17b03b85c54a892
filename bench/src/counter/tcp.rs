//! What attaching costs the host's own bulk traffic: one TCP stream through the
//! host's stack, with Ashway attached and without.
//!
//! `attach = "auto"` decides where; an XDP program on a veth would switch off the peer's
//! segmentation offload (`ashway bench hooks` compares both). No promise is made about it
//! here; it is measured so that it can be said.

use anyhow::{Context, Result};
use serde_json::json;

use super::{Options, Section};
use crate::hosts;
use crate::iperf::{self, TcpDirection};
use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// Length of one stream, in s.
const LASTS: u32 = 2;

pub(super) fn measure(options: &Options) -> Result<Section> {
    let rig = hosts::stock("tcp")?;
    let _server = iperf::server(&rig)?;
    let lasts = options.scaled(LASTS);
    let mut rounds = Vec::new();
    let mut hook = String::new();
    for _ in 0..options.rounds {
        let without = iperf::stream(&rig, TcpDirection::In, lasts)?;
        let node = options.node(&rig, hosts::config("b0")?)?.start()?;
        hook = hosts::hook(node.socket())?;
        let with = iperf::stream(&rig, TcpDirection::In, lasts)?;
        node.stop()?;
        rounds.push((without, with));
    }
    let without = Spread::of(rounds.iter().map(|round| round.0)).context("no rounds")?;
    let with = Spread::of(rounds.iter().map(|round| round.1)).context("no rounds")?;
    let line = |name: &str, spread: Spread| {
        let cells = [spread.median, spread.min, spread.max].map(table::digits);
        [vec![name.to_owned()], cells.to_vec()].concat()
    };
    let lines = [line("not attached", without), line("attached", with)];
    let ratio = rounds.iter().map(|(without, with)| with / without);
    Ok(Section {
        document: json!({
            "hook": hook,
            "without_gbit": without.to_json(),
            "with_gbit": with.to_json(),
        }),
        text: format!(
            "One TCP stream from A through B's own stack (Gbit/s); `auto` attached at {hook}:\n\n{}",
            table::render(&["ASHWAY", "GBIT/S", "MIN", "MAX"], 1, &lines)
        ),
        ratios: Ratio::of("tcp_with_over_without", Target::Recorded, ratio)
            .into_iter()
            .collect(),
    })
}
