//! The host's own TCP beside a node.

use anyhow::{Context, Result};
use ashway_rig::Rig;
use serde_json::json;

use super::{Options, Section, settled};
use crate::hosts;
use crate::iperf::{self, TcpDirection};
use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// What is on B's end of the wire; nothing, or a node.
const CASES: [Option<&str>; 3] = [None, Some("tcx"), Some("xdp")];

/// Length of one stream, in s.
const LASTS: u32 = 1;

/// Gbit/s of one round: of each case, into B and out of it.
type Round = [[f64; 2]; CASES.len()];

pub(super) fn measure(options: &Options) -> Result<Section> {
    let rig = hosts::stock("hooks-host")?;
    let _server = iperf::server(&rig)?;
    let mut changed = [0; CASES.len()];
    let mut rounds: Vec<Round> = Vec::new();
    let count = if options.quick { 2 } else { options.rounds };
    for number in 0..count {
        let before = wire(&rig)?;
        let mut round = Round::default();
        for case in (0..CASES.len()).map(|case| (case + number) % CASES.len()) {
            let node = CASES[case].map(|attach| options.node(&rig, attach)?.start());
            let node = node.transpose()?;
            if let Some(node) = &node {
                settled(node)?;
            }
            for (way, rate) in TcpDirection::BOTH.into_iter().zip(&mut round[case]) {
                *rate = iperf::stream(&rig, way, LASTS)?;
            }
            changed[case] += u32::from(wire(&rig)? != before);
            if let Some(node) = node {
                node.stop()?;
            }
        }
        rounds.push(round);
    }
    let of = |case: usize, way: usize| rounds.iter().map(move |round| round[case][way]);
    let mut lines = Vec::new();
    let mut document = Vec::new();
    for (case, attach) in CASES.into_iter().enumerate() {
        let name = attach.unwrap_or("nothing");
        let ways = [0, 1].map(|way| Spread::of(of(case, way)).context("no rounds"));
        let [into, out] = ways;
        let (into, out) = (into?, out?);
        let mut line = vec![name.to_owned()];
        for spread in [into, out] {
            line.extend([spread.median, spread.min, spread.max].map(table::digits));
        }
        line.push(changed[case].to_string());
        lines.push(line);
        document.push(json!({
            "attach": name, "in_gbit": into.to_json(), "out_gbit": out.to_json(),
            "wire_changed": changed[case],
        }));
    }
    let over_none = |case, way| {
        of(case, way)
            .zip(of(0, way))
            .map(|(with, without)| with / without)
    };
    let bound = |name, way| {
        let lower = lower_bound(&over_none(1, way).collect::<Vec<_>>())?;
        Ratio::exact(name, Target::AtLeast(0.95), lower)
    };
    let ratios = [
        bound("tcx_tcp_in_over_none_lower_95", 0),
        bound("tcx_tcp_out_over_none_lower_95", 1),
        Ratio::of("tcx_tcp_in_over_none", Target::Recorded, over_none(1, 0)),
        Ratio::of("tcx_tcp_out_over_none", Target::Recorded, over_none(1, 1)),
        Ratio::of("xdp_tcp_in_over_none", Target::Recorded, over_none(2, 0)),
        Ratio::of("xdp_tcp_out_over_none", Target::Recorded, over_none(2, 1)),
        Ratio::exact("tcx_wire_changed", Target::AtMost(0.0), changed[1].into()),
    ];
    Ok(Section {
        name: "host",
        document: document.into(),
        text: format!(
            "One TCP stream into B's own stack and out of it (Gbit/s), and in how many rounds \
             offloads or the MTU of the wire\nwere others than with nothing attached:\n\n{}",
            table::render(
                &[
                    "ATTACHED",
                    "IN",
                    "MIN",
                    "MAX",
                    "OUT",
                    "MIN",
                    "MAX",
                    "WIRE CHANGED"
                ],
                1,
                &lines
            )
        ),
        ratios: ratios.into_iter().flatten().collect(),
    })
}

/// What both ends of the wire say of their offloads and their MTU.
fn wire(rig: &Rig) -> Result<[String; 2]> {
    let ends = [(rig.command_a("sh"), "a0"), (rig.command_b("sh"), "b0")];
    let [a, b] = ends.map(|(mut command, iface)| -> Result<String> {
        command.args([
            "-c",
            &format!("ethtool -k {iface}; cat /sys/class/net/{iface}/mtu"),
        ]);
        let output = command.output().context("cannot start `sh`")?;
        anyhow::ensure!(output.status.success(), "`ethtool -k {iface}` failed");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    Ok([a?, b?])
}

/// The lower end of the interval that has the mean with 95 % certainty: Student's t of 14
/// degrees of freedom, which with more rounds is a little too careful. `None` for fewer than two.
fn lower_bound(values: &[f64]) -> Option<f64> {
    const T_14: f64 = 2.145;
    let count = values.len() as f64;
    if count < 2.0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>();
    let deviation = (squares / (count - 1.0)).sqrt();
    Some(mean - T_14 * deviation / count.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_more_is_known_less() {
        let bound = |values: &[f64]| lower_bound(values).unwrap();
        assert!((bound(&[1.0; 15]) - 1.0).abs() < 1e-9);
        let spread = [0.9, 1.1].repeat(8);
        assert!(bound(&spread) < 0.96 && bound(&spread) > 0.9);
        assert_eq!(lower_bound(&[1.0]), None);
    }
}
