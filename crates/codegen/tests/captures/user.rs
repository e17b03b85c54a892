//! The user tier: the table, and a path of stages.

use std::sync::Arc;

use ashway_abi::Count;
use ashway_demux::Table;
use ashway_modules::eth::Eth;
use ashway_modules::forward::Forward;
use ashway_modules::handler::{Act, Activate, Handler, Instance};
use ashway_modules::ip::Ip;
use ashway_modules::udp::Udp;
use ashway_modules::{Message, rules};
use ashway_path::attrs::{Attrs, Value};
use ashway_path::graph::Graph;
use ashway_path::module::{Module, Refused};
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::sim::Single;
use ashway_path::stage::Direction;
use ashway_path::time::Time;
use ashway_wire::Headers;

use super::world::{
    End, MTU, NEXT_MAC, OUR_MAC, OUT, OWN_MAC, OrderScope, is_raw, next_hop, own, table,
};

/// A handler with one verdict.
#[derive(Clone, Copy)]
struct Always(Act);

impl Instance for Always {
    fn bind(&self, _: &str, _: &Attrs) -> Result<Box<dyn Activate>, Refused> {
        Ok(Box::new(*self))
    }
}

impl Activate for Always {
    fn activate(&mut self, _: &mut Message) -> Act {
        self.0
    }
}

/// The table, and a path for each thing that may stand behind a slot, with and
/// without the rules that a node applies.
pub(crate) struct User {
    pub(crate) table: Table<usize>,
    paths: Vec<(OrderScope, Single<Message>)>,
}

impl User {
    pub(crate) fn new() -> Self {
        let rules: [&[_]; 2] = [&[], &rules::RULES];
        let all = OrderScope::ALL.into_iter();
        let paths = all.flat_map(|what| rules.map(|rules| (what, Single::new(path(what, rules)))));
        Self {
            table: table(),
            paths: paths.collect(),
        }
    }

    /// What becomes of a frame.
    pub(crate) fn end(&mut self, what: OrderScope, frame: &[u8]) -> End {
        if frame.len() < 14 || frame[..6] != OUR_MAC {
            return End::Host;
        }
        let Some(&path) = self.table.find(&Headers::parse(frame), frame).as_ref() else {
            return End::Host;
        };
        if is_raw(path) {
            return raw(what, path, &frame[14..]);
        }
        let mut ends = self.paths.iter_mut().filter(|(of, _)| *of == what);
        let mut run = || run(what, path, &mut ends.next().unwrap().1, frame);
        let (plain, ruled) = (run(), run());
        assert_eq!(plain, ruled, "rules change nothing");
        match plain {
            // The forward program leaves what is too long to the user tier.
            End::Ended(_, Count::DroppedTooLong) if what == OrderScope::Relay => {
                raw(what, path, &frame[14..])
            }
            end => end,
        }
    }
}

/// A frame as it is, behind its Ethernet header.
fn raw(what: OrderScope, path: usize, message: &[u8]) -> End {
    match what {
        // The forward program leaves them to the user tier.
        OrderScope::Ring | OrderScope::Relay => End::Queued(path, message.to_vec()),
        // Nobody knows who sent it.
        OrderScope::Echo => End::Ended(path, Count::DroppedNoSender),
    }
}

fn run(what: OrderScope, number: usize, path: &mut Single<Message>, frame: &[u8]) -> End {
    // All are created at the link.
    let exits = path.pass(Direction::Forward, Message::of_frame(frame), Time(0));
    let account = path.account();
    assert_eq!(account.faults, 0, "{:?}", account.fault);
    assert_eq!(account.open(), 0);
    assert_eq!(account.originated, account.left + account.ended);
    match exits.as_slice() {
        [Exit::Left { message, .. }] => {
            if what == OrderScope::Relay {
                assert_eq!(message.meta.iface, OUT);
            }
            End::Sent(number, message.bytes().to_vec())
        }
        [
            Exit::Ended {
                fate: Count::Passed,
                ..
            },
        ] => End::Host,
        [
            Exit::Ended {
                fate: Count::Consumed,
                message,
                ..
            },
        ] => End::Queued(number, message.bytes().to_vec()),
        [Exit::Ended { fate, .. }] => End::Ended(number, *fate),
        other => panic!("{other:?}"),
    }
}

type Boxed = Box<dyn Module<Message>>;

fn path(what: OrderScope, rules: &[ashway_path::rules::Rule<Message>]) -> Path<Message> {
    let eth = |name: &str, number, mac: [u8; 6]| -> Boxed {
        Box::new(Eth {
            name: name.into(),
            iface: name.into(),
            number,
            mac: mac.into(),
            mtu: MTU.into(),
            xdp: true,
            down: Arc::default(),
        })
    };
    let handler = |act| -> Boxed {
        Box::new(Handler {
            name: "top".into(),
            instance: Arc::new(Always(act)),
        })
    };
    let top = match what {
        OrderScope::Ring => handler(Act::Done(Count::Consumed)),
        OrderScope::Echo => handler(Act::Reply),
        OrderScope::Relay => Box::new(Forward { name: "top".into() }),
    };
    let modules = vec![
        ("in", eth("in", 1, OUR_MAC)),
        ("out", eth("out", OUT, OWN_MAC)),
        ("ip", Box::new(Ip { name: "ip".into() }) as Boxed),
        ("udp", Box::new(Udp { name: "udp".into() })),
        ("top", top),
    ];
    let edges = [
        ("ip.down", "in.up"),
        ("ip.down", "out.up"),
        ("udp.down", "ip.up"),
        ("top.down", "udp.up"),
    ];
    let mut graph = Graph::connect(modules, &edges).unwrap_or_else(|found| panic!("{found:?}"));
    graph.init().unwrap();
    let mut attrs = Attrs::new();
    if what == OrderScope::Relay {
        let mac = NEXT_MAC.map(|byte| format!("{byte:02x}")).join(":");
        attrs.set("next_hop", next_hop());
        attrs.set("from", own());
        attrs.set("next_hop_mac", Value::of_text(&mac));
        attrs.set("out", "out");
    }
    let created = graph.create("p", "in", attrs, Limits::default(), rules);
    created.unwrap_or_else(|error| panic!("{error}")).path
}
