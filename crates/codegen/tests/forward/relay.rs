//! The user tier's path for a case: eth, ip, udp, forward, udp, ip, eth.

use ashway_abi::Count;
use ashway_modules::eth::Eth;
use ashway_modules::forward::Forward;
use ashway_modules::ip::Ip;
use ashway_modules::udp::Udp;
use ashway_modules::{Message, rules};
use ashway_path::attrs::{Attrs, Value};
use ashway_path::graph::Graph;
use ashway_path::module::Module;
use ashway_path::path::{Exit, Limits};
use ashway_path::stage::Direction;
use ashway_path::time::Time;

use super::cases::{Case, MTU, OUT};

type Boxed = Box<dyn Module<Message>>;

/// What it sends by interface [`OUT`], or the fate of what it drops.
pub(crate) fn send(case: &Case, frame: &[u8], ruled: bool) -> Result<Vec<u8>, Count> {
    let eth = |name: &str, number, mac| -> Boxed {
        Box::new(Eth {
            name: name.into(),
            iface: name.into(),
            number,
            mac,
            mtu: MTU,
            xdp: true,
        })
    };
    let modules: Vec<(&str, Boxed)> = vec![
        ("in", eth("in", 1, case.to.mac)),
        ("out", eth("out", OUT, case.own.mac)),
        ("ip", Box::new(Ip { name: "ip".into() })),
        ("udp", Box::new(Udp { name: "udp".into() })),
        (
            "relay",
            Box::new(Forward {
                name: "relay".into(),
            }),
        ),
    ];
    let edges = [
        ("ip.down", "in.up"),
        ("ip.down", "out.up"),
        ("udp.down", "ip.up"),
        ("relay.down", "udp.up"),
    ];
    let mut graph = Graph::connect(modules, &edges).unwrap_or_else(|found| panic!("{found:?}"));
    graph.init().unwrap();

    let mut attrs = Attrs::new();
    let next_mac = case.next.mac.map(|byte| format!("{byte:02x}")).join(":");
    attrs.set("local", case.to.address);
    attrs.set("next_hop", case.next.address);
    attrs.set("from", case.own.address);
    attrs.set("next_hop_mac", Value::of_text(&next_mac));
    attrs.set("out", "out");
    attrs.set("ttl", u64::from(case.hops));
    if let Some(id) = case.vlan_out {
        attrs.set("next_hop_vlan", u64::from(id));
    }
    let rules = if ruled { &rules::RULES[..] } else { &[] };
    let created = graph.create("relay", "in", attrs, Limits::default(), rules);
    let mut path = created.unwrap_or_else(|error| panic!("{error}")).path;
    let mut exits = Vec::new();
    let message = Message::of_frame(frame);
    path.pass(Direction::Forward, message, Time(0), &mut |exit| {
        exits.push(exit);
    });
    match exits.as_slice() {
        [Exit::Left { message, .. }] => {
            assert_eq!(message.meta.iface, OUT);
            Ok(message.bytes().to_vec())
        }
        [Exit::Ended { fate, .. }] => Err(*fate),
        other => panic!("{other:?}"),
    }
}
