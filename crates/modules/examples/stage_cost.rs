//! What a message costs on eth-ip-udp-echo: stage by stage, with the stages
//! merged, and by calling what both are made of directly.
//!
//! ```text
//! cargo run --release -p ashway-modules --example stage_cost
//! ```

use std::any::Any;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use ashway_abi::Count;
use ashway_modules::services::NET;
use ashway_modules::{Message, eth::Eth, ip::Ip, rules::RULES, udp::Udp};
use ashway_path::attrs::Attrs;
use ashway_path::graph::Graph;
use ashway_path::module::{Kind, Module, Next, Refused, StageAndNext};
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::rules::Rule;
use ashway_path::service::Service;
use ashway_path::sim::Single;
use ashway_path::stage::{Cx, Direction, Stage, Step};
use ashway_path::time::Time;
use ashway_wire::{Datagram, emit::Headers, make_reply};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Short enough to be over, now and then, before anybody else gets the CPU.
const MESSAGES: u32 = 4_000;
const ROUNDS: u32 = 400;

static ECHO: Kind = Kind {
    name: "echo",
    about: "answers each message with itself",
    services: &[Service {
        name: "down",
        provides: &NET,
        requires: &NET,
        after: true,
    }],
    params: &[],
};

struct Echo;

impl Module<Message> for Echo {
    fn kind(&self) -> &'static Kind {
        &ECHO
    }

    fn stage(&self, _: Option<usize>, _: &mut Attrs) -> Result<StageAndNext<Message>, Refused> {
        Ok(StageAndNext {
            stage: Box::new(Self),
            next: Next::Through(0),
        })
    }
}

impl Stage<Message> for Echo {
    fn name(&self) -> &str {
        ECHO.name
    }

    fn take(&mut self, message: Message, _: Direction, _: &mut Cx<'_, Message>) -> Step<Message> {
        if message.can_be_answered() {
            Step::Back(message, Count::Answered)
        } else {
            Step::End(message, Count::DroppedNoSender)
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn path(rules: &[Rule<Message>]) -> Result<Path<Message>, Box<dyn std::error::Error>> {
    let modules: Vec<(&str, Box<dyn Module<Message>>)> = vec![
        (
            "eth",
            Box::new(Eth {
                name: "eth".into(),
                iface: "veth0".into(),
                number: 3,
                mac: MAC.into(),
                mtu: 1500.into(),
                xdp: true,
                down: Arc::default(),
            }),
        ),
        ("ip", Box::new(Ip { name: "ip".into() })),
        ("udp", Box::new(Udp { name: "udp".into() })),
        ("echo", Box::new(Echo)),
    ];
    let edges = [
        ("echo.down", "udp.up"),
        ("udp.down", "ip.up"),
        ("ip.down", "eth.up"),
    ];
    let graph = Graph::connect(modules, &edges).map_err(|problems| problems[0].message.clone())?;
    let created = graph.create("echo", "echo", Attrs::new(), Limits::default(), rules)?;
    Ok(created.path)
}

/// Nanoseconds per message: the least of many rounds.
fn least(mut round: impl FnMut()) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / f64::from(MESSAGES)
        })
        .fold(f64::INFINITY, f64::min)
}

fn along(path: Path<Message>, frame: &[u8]) -> f64 {
    let mut path = Single::new(path);
    let mut message = Some(Message::of_frame(frame));
    least(|| {
        for _ in 0..MESSAGES {
            let Some(mut one) = message.take() else {
                return;
            };
            one.fill(frame.len(), |into| into.copy_from_slice(frame));
            for exit in path.pass(Direction::Backward, one, Time(0)) {
                if let Exit::Left { message: left, .. } = exit {
                    message = Some(left);
                }
            }
        }
    })
}

fn direct(frame: &[u8]) -> f64 {
    let mut buffer = frame.to_vec();
    least(|| {
        for _ in 0..MESSAGES {
            buffer.copy_from_slice(frame);
            let frame = black_box(&mut buffer);
            let answer = Datagram::parse(frame)
                .ok()
                .and_then(|datagram| datagram.validate(frame).ok())
                .and_then(|found| make_reply(frame, found.payload_off, found.payload_len).ok());
            black_box(answer);
        }
    })
}

fn copy(frame: &[u8]) -> f64 {
    let mut message = Message::of_frame(frame);
    least(|| {
        for _ in 0..MESSAGES {
            message.fill(frame.len(), |into| into.copy_from_slice(frame));
            black_box(&mut message);
        }
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "ns per message: in, answered, out; the copy into the buffer (least of {ROUNDS} times {MESSAGES})"
    );
    println!(
        "{:>8} {:>6} {:>8} {:>8} {:>8} {:>8}",
        "", "bytes", "stages", "merged", "direct", "copy"
    );
    for (name, ends) in [
        ("IPv4", ["10.0.0.1:1000", "10.0.0.2:7777"]),
        ("IPv6", ["[fd00::1]:1000", "[fd00::2]:7777"]),
    ] {
        for len in [4, 64, 1400] {
            let mut frame = vec![0; 1514];
            let headers = Headers {
                source_mac: [2, 0, 0, 0, 0, 1],
                destination_mac: MAC,
                source: ends[0].parse()?,
                destination: ends[1].parse()?,
            };
            let whole = headers.emit(&mut frame, &vec![7; len]).ok_or("too long")?;
            frame.truncate(whole);
            println!(
                "{name:>8} {len:>6} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
                along(path(&[])?, &frame),
                along(path(&RULES)?, &frame),
                direct(&frame),
                copy(&frame)
            );
        }
    }
    Ok(())
}
