//! The kinds of modules that a configuration may name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use ashway_path::module::{Kind, Module};
use ashway_path::problem::Problem;
use ashway_path::read::{Kinds, Params};

use crate::eth::Eth;
use crate::fault::Fault;
use crate::forward::Forward;
use crate::fragment::{self, Fragment};
use crate::host::Host;
use crate::ip::Ip;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::mac::Mac;
use crate::mtu::Mtu;
use crate::sink::Sink;
use crate::source::Source;
use crate::udp::Udp;
use crate::{Message, eth, fault, forward, host, ip, ipv4, ipv6, sink, source, udp};

/// Kinds that need no more than this crate and to know the interfaces. Whoever
/// can do more (run handlers, show messages to people, obey commands) has kinds
/// of its own and looks among them first.
pub static PROTOCOLS: &[&Kind] = &[
    &eth::KIND,
    &fault::KIND,
    &forward::KIND,
    &fragment::KIND,
    &host::KIND,
    &ip::KIND,
    &ipv4::KIND,
    &ipv6::KIND,
    &sink::KIND,
    &source::KIND,
    &udp::KIND,
];

/// What a shell knows of an interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its number.
    pub number: u32,
    /// Its hardware address.
    pub mac: Mac,
    /// Its MTU.
    pub mtu: Mtu,
    /// Whether an entry program can stand on it.
    pub xdp: bool,
    /// Whether it is down or gone ([`Eth::down`]).
    pub down: Arc<AtomicBool>,
}

/// Makes the modules of [`PROTOCOLS`].
pub struct Protocols<F> {
    /// Finds an interface by its name; the error says why it cannot be used.
    pub interface: F,
    /// The identification of the last fragmented packet: one for all modules.
    pub identification: Arc<AtomicU32>,
}

impl<F: Fn(&str) -> Result<Interface, String>> Kinds<Message> for Protocols<F> {
    fn find(&self, word: &str) -> Option<&'static Kind> {
        PROTOCOLS.iter().copied().find(|kind| kind.name == word)
    }

    fn words(&self) -> Vec<&'static str> {
        PROTOCOLS.iter().map(|kind| kind.name).collect()
    }

    fn make(
        &self,
        kind: &'static Kind,
        name: &str,
        params: &mut Params<'_>,
    ) -> Result<Box<dyn Module<Message>>, Vec<Problem>> {
        let name = name.into();
        let module: Option<Box<dyn Module<Message>>> = match kind.name {
            "eth" => self.eth(name, params).map(|eth| Box::new(eth) as _),
            "fault" => Some(Box::new(Fault::read(name, params))),
            "forward" => Some(Box::new(Forward { name })),
            "fragment" => Some(Box::new(self.fragment(name, params))),
            "host" => Some(Box::new(Host { name })),
            "ip" => Some(Box::new(Ip { name })),
            "ipv4" => Some(Box::new(Ipv4 { name })),
            "ipv6" => Some(Box::new(Ipv6 { name })),
            "sink" => Some(Box::new(Sink { name })),
            "source" => Some(Box::new(Source { name })),
            "udp" => Some(Box::new(Udp { name })),
            _ => {
                params.refuse("kind", "this kind is made elsewhere", "ask its own list");
                None
            }
        };
        params.done(module)
    }
}

impl<F: Fn(&str) -> Result<Interface, String>> Protocols<F> {
    fn eth(&self, name: Arc<str>, params: &mut Params<'_>) -> Option<Eth> {
        let iface: String = params.required("iface")?;
        match (self.interface)(&iface) {
            Ok(Interface {
                number,
                mac,
                mtu,
                xdp,
                down,
            }) => Some(Eth {
                name,
                iface: iface.into(),
                number,
                mac,
                mtu,
                xdp,
                down,
            }),
            Err(because) => {
                params.refuse(
                    "iface",
                    &because,
                    "`ip link` lists the interfaces there are",
                );
                None
            }
        }
    }

    fn fragment(&self, name: Arc<str>, params: &mut Params<'_>) -> Fragment {
        let usual = fragment::Limits::default();
        let mut limit = |name, usual: usize| {
            let given: Option<u64> = params.optional(name);
            given.map_or(usual, |given| usize::try_from(given).unwrap_or(usize::MAX))
        };
        let limits = fragment::Limits {
            bytes: limit(fragment::REASSEMBLY_BYTES, usual.bytes),
            datagrams: limit(fragment::REASSEMBLY_DATAGRAMS, usual.datagrams),
        };
        if let Err((key, message, hint)) = limits.check() {
            params.refuse(key, &message, &hint);
        }
        Fragment {
            name,
            limits,
            identification: Arc::clone(&self.identification),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ashway_path::attrs::Attrs;
    use ashway_path::graph::Graph;
    use ashway_path::path::Limits;
    use toml::de::DeTable;

    use super::*;
    use crate::rules::RULES;

    fn read(text: &str) -> Result<Graph<Message>, Vec<(String, String)>> {
        let kinds = Protocols {
            interface: |name: &str| match name {
                "veth0" => Ok(Interface {
                    number: 3,
                    mac: [2, 0, 0, 0, 0, 2].into(),
                    mtu: 1400.into(),
                    xdp: true,
                    down: Arc::default(),
                }),
                _ => Err(format!("there is no interface `{name}`")),
            },
            identification: Arc::default(),
        };
        let table = DeTable::parse(text).unwrap();
        Graph::read(table.get_ref(), &kinds).map_err(|problems| {
            let place = |problem: &Problem| text[problem.span.clone().unwrap()].to_owned();
            let show = |problem: Problem| (place(&problem), problem.message);
            problems.into_iter().map(show).collect()
        })
    }

    const GRAPH: &str = "
        [module.wire]
        kind = 'eth'
        iface = 'veth0'
        [module.frag]
        kind = 'fragment'
        reassembly_bytes = 65536
        down = 'wire.up'
        [module.ip]
        kind = 'ip'
        down = 'frag.up'
        [module.udp]
        kind = 'udp'
        down = 'ip.up'
        [module.sink]
        kind = 'sink'
        down = 'udp.up'
    ";

    #[test]
    fn a_graph_of_text_makes_paths() {
        let graph = read(GRAPH).unwrap();
        let create = |module, attrs| graph.create("p", module, attrs, Limits::default(), &RULES);
        let path = create("sink", Attrs::new()).unwrap().path;
        assert_eq!(path.len(), 5);
        assert_eq!(path.attrs().number("mtu"), Some(1400));
        let mut attrs = Attrs::new();
        attrs.set(fragment::LONGEST, 1400);
        assert_eq!(create("sink", attrs).unwrap().path.len(), 2);
        // The parameter is the path's limit, and a grant of 64 KiB is too small.
        let refused = create("frag", Attrs::new()).err().unwrap();
        assert!(refused.because.contains("(65"), "{refused}");
    }

    #[test]
    fn mistakes_are_shown_at_their_places() {
        let wrong = GRAPH
            .replace("'veth0'", "'veth9'")
            .replace("65536", "100")
            .replace("'udp'\n", "'upd'\n");
        let problems = read(&wrong).err().unwrap();
        let places: Vec<_> = problems.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["'upd'", "'veth9'", "100"]);
        assert_eq!(problems[1].1, "there is no interface `veth9`");
        let missing = read("[module.wire]\nkind = 'eth'\nspeed = 1")
            .err()
            .unwrap();
        let messages: Vec<_> = missing
            .iter()
            .map(|(_, message)| message.as_str())
            .collect();
        assert_eq!(
            messages,
            [
                "`module.wire` has no key `speed`",
                "`module.wire` needs the key `iface`"
            ]
        );
    }

    #[test]
    fn every_kind_of_the_list_is_made() {
        let kinds = Protocols {
            interface: |_: &str| Err(String::new()),
            identification: Arc::default(),
        };
        assert_eq!(kinds.words().len(), PROTOCOLS.len());
        for kind in PROTOCOLS {
            let text = format!("[module.m]\nkind = '{}'", kind.name);
            let table = DeTable::parse(&text).unwrap();
            match Graph::<Message>::read(table.get_ref(), &kinds) {
                Ok(graph) => assert_eq!(graph.nodes()[0].module.kind().name, kind.name),
                Err(problems) => assert_eq!((kind.name, problems[0].code), ("eth", "missing_key")),
            }
        }
    }
}
