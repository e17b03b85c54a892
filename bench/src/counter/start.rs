//! From `ashway run` to the first answer, and what promoting takes.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Options, Section};
use crate::hosts::{self, COUNTER_PORT, Hosts};
use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// How often the client asks while nobody answers.
const EVERY: Duration = Duration::from_millis(2);

/// When it gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// One start; times in ms.
struct Start {
    first_answer: f64,
    translate: f64,
    load: f64,
    switch: f64,
}

pub(super) fn measure(options: &Options) -> Result<Section> {
    let mut starts = Vec::new();
    for _ in 0..options.rounds {
        starts.push(start(options)?);
    }
    let spread = |of: fn(&Start) -> f64| Spread::of(starts.iter().map(of)).context("no rounds");
    let promotion: fn(&Start) -> f64 = |start| start.translate + start.load + start.switch;
    let parts = [
        ("first_answer", spread(|start| start.first_answer)?),
        ("promotion", spread(promotion)?),
        ("translate", spread(|start| start.translate)?),
        ("load", spread(|start| start.load)?),
        ("switch", spread(|start| start.switch)?),
    ];
    let mut document = json!({});
    let mut lines = Vec::new();
    for (name, spread) in parts {
        document[format!("{name}_ms")] = spread.to_json();
        let cells = [spread.median, spread.min, spread.max].map(|ms| format!("{ms:.3}"));
        lines.push([vec![name.to_owned()], cells.to_vec()].concat());
    }
    let ratio = |name, limit, of: fn(&Start) -> f64| {
        Ratio::of(name, Target::AtMost(limit), starts.iter().map(of))
    };
    Ok(Section {
        document,
        text: format!(
            "From `ashway run` to the first answer, and of that the promotion of the counter \
             (ms):\n\n{}",
            table::render(&["WHAT", "MS", "MIN", "MAX"], 1, &lines)
        ),
        ratios: [
            ratio("first_answer_ms", 300.0, |start| start.first_answer),
            ratio("promotion_ms", 5.0, promotion),
            ratio("switch_ms", 1.0, |start| start.switch),
        ]
        .into_iter()
        .flatten()
        .collect(),
    })
}

fn start(options: &Options) -> Result<Start> {
    let rig = hosts::stock("start")?;
    let client = rig.client(COUNTER_PORT)?;
    client.set_read_timeout(Some(EVERY))?;
    let builder = options.node(&rig, hosts::config("b0")?)?;
    let begin = Instant::now();
    let node = builder.launch()?;
    let mut reply = [0; 4];
    loop {
        // Refused: the host's own stack has answered that nobody listens yet.
        let answered = client
            .send(&0_u32.to_be_bytes())
            .and_then(|_| client.recv(&mut reply));
        match answered {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::thread::sleep(EVERY);
            }
            Err(error) => return Err(error).context("cannot ask"),
        }
        if begin.elapsed() > PATIENCE {
            bail!("no answer; the node printed:\n{}", node.output());
        }
    }
    let first_answer = begin.elapsed().as_secs_f64() * 1e3;
    node.wait_for_line(|line| line.starts_with("ready"))?;
    let status = hosts::status(node.socket())?;
    let promotion = &hosts::named(&status, "handlers", "counter")?["promotion"];
    if promotion["state"] != "promoted" {
        bail!("the counter was not promoted: {promotion}");
    }
    let number = |value: &Value| value.as_f64().context("the status lacks a time");
    let start = Start {
        first_answer,
        translate: number(&promotion["translate_us"])? / 1e3,
        load: number(&promotion["load_us"])? / 1e3,
        switch: number(&promotion["switch_ns"])? / 1e6,
    };
    node.stop()?;
    Ok(start)
}
