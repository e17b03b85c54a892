//! Functions from a configuration's text: the examples in their own documents,
//! and what is wrong with parameters.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use ashway_modules::fault::Fault;
use ashway_modules::handler::{Act, Handler};
use ashway_modules::shell::{Commands, Outcome, Request, Shell};
use ashway_modules::tap::{Seen, Tap, Watch};
use ashway_modules::{
    Message, eth, fault, forward, handler, host, ip, shell, sink, source, tap, udp,
};
use ashway_path::graph::Graph;
use ashway_path::module::{Kind, Module};
use ashway_path::problem::Problem;
use ashway_path::read::{Kinds, Params};
use toml::de::DeTable;

struct Nobody;

impl Watch for Nobody {
    fn see(&self, _: &Seen<'_>) {}
}

impl Commands for Nobody {
    fn begin(&self, _: SocketAddr, _: Request) -> Receiver<Outcome> {
        channel().1
    }
}

/// All kinds that there are here.
struct All;

const KINDS: &[&Kind] = &[
    &eth::KIND,
    &ip::KIND,
    &udp::KIND,
    &handler::KIND,
    &host::KIND,
    &forward::KIND,
    &tap::KIND,
    &source::KIND,
    &sink::KIND,
    &fault::KIND,
    &shell::KIND,
];

impl Kinds<Message> for All {
    fn find(&self, word: &str) -> Option<&'static Kind> {
        KINDS.iter().copied().find(|kind| kind.name == word)
    }

    fn words(&self) -> Vec<&'static str> {
        KINDS.iter().map(|kind| kind.name).collect()
    }

    fn make(
        &self,
        kind: &'static Kind,
        name: &str,
        params: &mut Params<'_>,
    ) -> Result<Box<dyn Module<Message>>, Vec<Problem>> {
        let name: Box<str> = name.into();
        let module: Option<Box<dyn Module<Message>>> = match kind.name {
            "tap" => {
                Tap::read(name, params, |_| Ok(Arc::new(Nobody))).map(|tap| Box::new(tap) as _)
            }
            "shell" => Shell::read(name, params, |_| Ok(Arc::new(Nobody)))
                .map(|shell| Box::new(shell) as _),
            _ => Some(simple(kind, name.into(), params)),
        };
        params.done(module)
    }
}

/// Those that cannot be made wrong, or note it themselves.
fn simple(kind: &Kind, name: Arc<str>, params: &mut Params<'_>) -> Box<dyn Module<Message>> {
    match kind.name {
        "eth" => world::eth("wire", 1, world::end(1, "10.0.1.1:9")),
        "ip" => world::ip(),
        "udp" => world::udp_module(),
        "handler" => Box::new(Handler {
            name,
            instance: Arc::new(world::Fake::new(|_| Act::Pass)),
        }),
        "host" => Box::new(host::Host { name }),
        "forward" => Box::new(forward::Forward { name }),
        "source" => Box::new(source::Source { name }),
        "sink" => Box::new(sink::Sink { name }),
        "fault" => Box::new(Fault::read(name, params)),
        other => panic!("{other}"),
    }
}

fn read(text: &str) -> Result<Graph<Message>, Vec<String>> {
    let table = DeTable::parse(text).unwrap();
    Graph::read(table.get_ref(), &All).map_err(|problems| {
        problems
            .iter()
            .map(|problem| format!("{problem}; {}", problem.hint.clone().unwrap_or_default()))
            .collect()
    })
}

const STACK: &str = "
[module.wire]\nkind = 'eth'\niface = 'veth0'
[module.ip]\nkind = 'ip'\ndown = 'wire.up'
[module.udp]\nkind = 'udp'\ndown = 'ip.up'
";

#[test]
fn the_examples_in_the_documents_are_a_configuration() {
    let mut text = STACK.to_owned();
    for source in [
        include_str!("../src/handler.rs"),
        include_str!("../src/host.rs"),
        include_str!("../src/forward.rs"),
        include_str!("../src/tap.rs"),
        include_str!("../src/source.rs"),
        include_str!("../src/sink.rs"),
        include_str!("../src/fault.rs"),
        include_str!("../src/shell.rs"),
    ] {
        let example = source
            .lines()
            .skip_while(|line| *line != "//! ```toml")
            .skip(1);
        for line in example.take_while(|line| *line != "//! ```") {
            text += line.trim_start_matches("//!").trim_start();
            text += "\n";
        }
    }
    let mut graph = read(&text).unwrap_or_else(|problems| panic!("{problems:#?}"));
    graph.init().unwrap();
    assert_eq!(graph.nodes().len(), 11);
}

#[test]
fn every_parameter_that_is_declared_is_read() {
    let mut text = STACK.to_owned() + "[module.bad]\nkind = 'fault'\ndown = 'wire.up'\n";
    for param in fault::KIND.params {
        text += param.name;
        text += " = 'much'\n";
    }
    let problems = read(&text).err().unwrap();
    assert_eq!(problems.len(), fault::KIND.params.len(), "{problems:#?}");
}

#[test]
fn what_is_wrong_is_said_with_the_next_step() {
    for (section, said) in [
        (
            "kind = 'fault'\nloss_ppm = 1000001",
            "`loss_ppm` is 1000001, and can be 1000000 at most; give it a number from 0 to 1000000",
        ),
        (
            "kind = 'fault'\nhold = 5000",
            "`hold` is 5000, and can be 4096 at most; give it a number from 0 to 4096",
        ),
        (
            "kind = 'tap'\nlayer = 'link'",
            "there is no layer `link`; available: `network`, `payload`",
        ),
        (
            "kind = 'tap'\nfile = 'x'\nmax_bytes = 100",
            "`max_bytes` is 100, and too small for a capture; give it 1048576 (1 MiB) or more",
        ),
        ("kind = 'tap'", "`module.m` needs the key `file`"),
        (
            "kind = 'shell'\nallow = ['::1']",
            "`module.m` needs the key `domain`",
        ),
        (
            "kind = 'shell'",
            "`allow` is empty, so that no address may command `m`; name addresses: allow = [\"10.0.1.2\"]",
        ),
        (
            "kind = 'shell'\nallow = ['everybody']",
            "`allow` must be an address",
        ),
    ] {
        let problems = read(&format!("[module.m]\n{section}\n")).err().unwrap();
        assert!(
            problems.iter().any(|problem| problem.starts_with(said)),
            "{problems:#?}"
        );
    }
}

#[test]
fn a_shell_stands_on_a_transport_and_on_nothing_else() {
    let text = STACK.to_owned()
        + "[module.m]\nkind = 'shell'\ndown = 'ip.up'\nallow = ['::1']\ndomain = 'd'\n";
    let problems = read(&text).err().unwrap();
    assert!(
        problems[0].contains("transport") && problems[0].contains("network"),
        "{problems:?}"
    );
}
