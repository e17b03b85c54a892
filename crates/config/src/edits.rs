//! A running graph that handlers come to and go from keeps its modules.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ashway_modules::handler;
use ashway_modules::kinds::Interface;
use ashway_modules::shell::Commands;
use ashway_modules::tap::{Seen, Target, Watch};

use super::*;
use crate::bug::{self, Bug};

/// A tap's file that is begun anew whenever somebody asks for it: the state of the
/// module that has it is what was written.
#[derive(Default)]
struct Begun(AtomicU32);

impl Watch for Begun {
    fn see(&self, _: &Seen<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A world that remembers the files of its taps.
struct Watched<'c, 'f> {
    offline: Offline<'c>,
    files: &'f RefCell<Vec<Arc<Begun>>>,
}

impl World for Watched<'_, '_> {
    fn interface(&self, name: &str) -> Result<Interface, String> {
        self.offline.interface(name)
    }

    fn handler(&self, name: &str) -> Option<Arc<dyn handler::Instance>> {
        self.offline.handler(name)
    }

    fn watch(&self, _: &str, _: &FsPath, _: &Target) -> Result<Arc<dyn Watch>, String> {
        let begun = Arc::new(Begun::default());
        self.files.borrow_mut().push(Arc::clone(&begun));
        Ok(begun)
    }

    fn commands(&self, domain: &str) -> Arc<dyn Commands> {
        self.offline.commands(domain)
    }

    fn identification(&self) -> Arc<AtomicU32> {
        self.offline.identification()
    }
}

fn watched<'c, 'f>(config: &'c Config, files: &'f RefCell<Vec<Arc<Begun>>>) -> Watched<'c, 'f> {
    Watched {
        offline: Offline(config),
        files,
    }
}

const TEXT: &str = "[iface.veth0]\n[module.ear]\nkind = 'tap'\nfile = 'ear.pcapng'\n\
                    down = 'udp.up'\n";

/// Which modules went and came as a handler was loaded, and another unloaded; and how
/// many files the tap began.
fn load_and_unload() -> (Vec<String>, usize) {
    let mut config = parse(FsPath::new("test.toml"), TEXT.as_bytes()).unwrap();
    let files = RefCell::default();
    let mut graph = config.graph(&watched(&config, &files)).unwrap();
    graph.graph.init().unwrap();
    let mut said = Vec::new();
    for name in ["h", "g", ""] {
        let mut next_config = config.clone();
        if name.is_empty() {
            next_config.handlers.remove(0);
        } else {
            let handler = HandlerConfig::of_file(name, PathBuf::new());
            next_config.handlers.push(handler);
        }
        let next = next_config.graph_behind(&graph, &watched(&next_config, &files));
        let next = next.unwrap();
        let [go, come] = graph.graph.changes(&next.graph);
        said.push(format!("-{} +{}", go.join(","), come.join(",")));
        (config, graph) = (next_config, next);
    }
    (said, files.take().len())
}

#[test]
fn a_module_keeps_its_state_while_handlers_come_and_go() {
    let right = ["- +handler:h", "- +handler:g", "-handler:h +"].map(str::to_owned);
    assert_eq!(load_and_unload(), (right.to_vec(), 1));
    let (rebuilt, begun) = bug::with(Bug::GraphRebuilt, load_and_unload);
    assert_eq!(begun, 4);
    assert_eq!(
        rebuilt[2],
        "-ear,eth:veth0,handler:g,handler:h,ip,udp +ear,eth:veth0,handler:g,ip,udp"
    );
}

#[test]
fn a_handler_that_cannot_stand_there_changes_nothing() {
    let config = parse(FsPath::new("test.toml"), TEXT.as_bytes()).unwrap();
    let graph = {
        let mut graph = config.graph(&Offline(&config)).unwrap();
        graph.graph.init().unwrap();
        graph
    };
    let mut next = config.clone();
    next.handlers
        .push(HandlerConfig::of_file("h", PathBuf::new()));
    next.placements.push(Placement {
        handler: "h".to_owned(),
        down: "nowhere.up".to_owned(),
        up: None,
    });
    let refused = next.graph_behind(&graph, &Offline(&next)).unwrap_err();
    assert_eq!(refused.list()[0].message, "there is no module `nowhere`");
    let same = config.graph_behind(&graph, &Offline(&config)).unwrap();
    assert_eq!(
        graph.graph.changes(&same.graph),
        [vec![], vec![]] as [Vec<&str>; 2]
    );
}
