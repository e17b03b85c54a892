//! What the modules of a running node have to do with: its interfaces and its
//! handlers.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ashway_kernel::Iface;
use ashway_modules::handler;
use ashway_modules::kinds::Interface;
use ashway_modules::mac::Mac;
use ashway_modules::mtu::Mtu;
use ashway_modules::shell::Commands;
use ashway_modules::tap::{Target, Watch};

use super::RunError;
use crate::rung::Rung;
use crate::shells::Shells;
use crate::taps::Taps;
use ashway_config::{Config, NodeGraph, Offline, World};
use ashway_worker::handle::HandlerHandle;
use ashway_worker::iface_map::IfaceMap;

/// An interface of the node, as its module knows it.
#[derive(Clone, Debug)]
pub(super) struct Link {
    name: String,
    interface: Interface,
}

impl Link {
    pub(super) fn new(number: usize, found: &Iface, rung: Rung) -> Self {
        Self {
            name: found.name.clone(),
            interface: Interface {
                number: number as u32,
                mac: found.mac.into(),
                mtu: found.mtu.into(),
                xdp: rung.has_programs(),
                down: Arc::default(),
            },
        }
    }

    /// The same that takes frames for any address.
    pub(super) fn for_anybody(mut self) -> Self {
        self.interface.mac = Mac::of_anybody(self.interface.mac.get());
        self
    }

    /// The interface's number.
    pub(super) const fn number(&self) -> usize {
        self.interface.number as usize
    }

    /// Its hardware address: all who have it follow when it is set.
    pub(super) fn mac(&self) -> &Mac {
        &self.interface.mac
    }

    /// Its MTU: all who have it follow when it is set.
    pub(super) const fn mtu(&self) -> &Mtu {
        &self.interface.mtu
    }

    /// Tells all paths, those to come too, whether anything can leave by it.
    pub(super) fn set_down(&self, down: bool) {
        self.interface.down.store(down, Ordering::Relaxed);
    }
}

/// What modules have the node do beside the path.
#[derive(Debug)]
pub(super) struct NodeServices {
    /// Writes what taps see.
    pub(super) taps: Taps,
    /// Asks for what shells are told.
    pub(super) shells: Shells,
    /// The last identification of fragments. Every module of the node has this one: two
    /// that count for themselves would use a number twice for the same receiver.
    identification: Arc<AtomicU32>,
}

impl NodeServices {
    /// Nothing is served yet.
    ///
    /// # Errors
    ///
    /// When the shells cannot be called.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            taps: Taps::default(),
            shells: Shells::new()?,
            // Its keys are the system's random numbers: nobody can guess where the
            // identifications begin (RFC 7739).
            identification: Arc::new(AtomicU32::new(RandomState::new().hash_one(0) as u32)),
        })
    }
}

/// The graph of the configuration, initialised.
///
/// # Errors
///
/// [`RunError::Mistakes`]: all of them.
pub(super) fn graph(
    config: &Config,
    links: &IfaceMap<Link>,
    handlers: &[HandlerHandle],
    served: &NodeServices,
) -> Result<NodeGraph, RunError> {
    let world = Paths {
        links,
        handlers,
        served,
        changed: &Changed::default(),
    };
    let mut graph = config.graph(&world).map_err(RunError::Mistakes)?;
    config.init(&mut graph).map_err(RunError::Mistakes)?;
    Ok(graph)
}

/// The graph that follows `before`, which is as it was: modules of which the
/// configuration says the same stay, with what they know.
///
/// # Errors
///
/// [`RunError::Mistakes`].
pub(super) fn graph_behind(
    before: &NodeGraph,
    config: &Config,
    links: &IfaceMap<Link>,
    handlers: &[HandlerHandle],
    served: &NodeServices,
    changed: &Changed,
) -> Result<NodeGraph, RunError> {
    let world = Paths {
        links,
        handlers,
        served,
        changed,
    };
    let next = config.graph_behind(before, &world);
    next.map_err(RunError::Mistakes)
}

/// Handlers of which a graph that follows must know something.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Those that were loaded anew: no module of theirs is kept.
    pub(super) anew: BTreeSet<String>,
    /// Those that could not be made: what else is wrong is said nevertheless.
    pub(super) stubs: BTreeSet<String>,
}

/// The world of a running node.
struct Paths<'n> {
    links: &'n IfaceMap<Link>,
    handlers: &'n [HandlerHandle],
    served: &'n NodeServices,
    changed: &'n Changed,
}

impl World for Paths<'_> {
    fn interface(&self, name: &str) -> Result<Interface, String> {
        let mut links = self.links.values();
        let link = links.find(|link| link.name == name);
        link.map(|link| link.interface.clone())
            .ok_or_else(|| format!("this node has no interface `{name}`"))
    }

    fn handler(&self, name: &str) -> Option<Arc<dyn handler::Instance>> {
        if self.changed.stubs.contains(name) {
            return Some(Offline::stub());
        }
        let mut handlers = self.handlers.iter();
        let handler = handlers.find(|handler| handler.shared.name == name)?;
        // Modules have no use for its program, which is of the present hook.
        let mut handler = handler.clone();
        handler.user_program = None;
        Some(Arc::new(handler))
    }

    fn keeps_handler(&self, name: &str) -> bool {
        !self.changed.anew.contains(name)
    }

    fn watch(&self, tap: &str, file: &FsPath, target: &Target) -> Result<Arc<dyn Watch>, String> {
        match self.served.taps.open(tap, file, target) {
            Ok(file) => Ok(file),
            Err(error) => Err(error.to_string()),
        }
    }

    fn commands(&self, domain: &str) -> Arc<dyn Commands> {
        self.served.shells.of(domain)
    }

    fn identification(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.served.identification)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::{create_dir_all, read, read_dir, remove_dir_all, write};

    use ashway_modules::tap::HINT;

    use super::*;
    use crate::bug::{self, Bug};

    fn link() -> Link {
        Link {
            name: "veth0".to_owned(),
            interface: Interface {
                number: 0,
                mac: [2, 0, 0, 0, 0, 1].into(),
                mtu: 1500.into(),
                xdp: false,
                down: Arc::default(),
            },
        }
    }

    /// Of a file with five taps two cannot write, and the others can.
    #[test]
    fn every_tap_that_cannot_write_is_said_by_line_and_no_file_of_the_others_is_begun() {
        let dir = std::env::temp_dir().join(format!("ashway-unready-{}", std::process::id()));
        create_dir_all(&dir).unwrap();
        write(dir.join("old"), "of somebody").unwrap();
        let tap = |name: &str, file: &str| {
            format!("[module.{name}]\nkind = 'tap'\nfile = '{file}'\ndown = 'udp.up'\n")
        };
        let taps = [
            tap("a", "new"),
            tap("b", "nowhere/b"),
            tap("c", "old"),
            tap("d", "/dev"),
            tap("e", "/dev/full"),
        ];
        let text = format!("[iface.veth0]\n{}", taps.concat());
        let file = dir.join("test.toml");
        let config = ashway_config::parse(&file, text.as_bytes()).unwrap();
        let links = [(0, link())].into_iter().collect();
        let untouched = || {
            assert_eq!(read(dir.join("old")).unwrap(), b"of somebody");
            read_dir(&dir).unwrap().count() == 1
        };
        let said = |refused: RunError| {
            let RunError::Mistakes(all) = refused else {
                panic!("{refused}");
            };
            let cannot = |line: usize, module: &str, because: &str| {
                let message = format!("module `{module}` cannot be initialised: {because}");
                (line, message, HINT.to_owned())
            };
            let nowhere = dir.join("nowhere/b");
            let nowhere = nowhere.display();
            let because =
                format!("cannot write `{nowhere}`: No such file or directory (os error 2)");
            let all = all.by_line();
            let all = all.map(|(line, it)| (line, it.message.clone(), it.hint.clone().unwrap()));
            let both = [
                cannot(6, "b", &because),
                cannot(14, "d", "cannot write `/dev`: it is a directory"),
            ];
            assert_eq!(all.collect::<Vec<_>>(), both);
        };

        let served = NodeServices::new().unwrap();
        said(graph(&config, &links, &[], &served).err().unwrap());
        assert!(untouched());
        // The same of a graph that is to follow another, which goes on.
        let empty = ashway_config::parse(&file, b"[iface.veth0]\n").unwrap();
        let before = graph(&empty, &links, &[], &served).unwrap();
        let none = Changed::default();
        let next = || graph_behind(&before, &config, &links, &[], &served, &none);
        said(next().err().unwrap());
        assert!(untouched());
        served.taps.begin().unwrap();
        assert!(untouched() && served.taps.describe().is_empty());
        // If nobody asks the taps, nobody says anything.
        assert!(bug::with(Bug::TapUnopened, next).is_ok());
        remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn all_modules_of_a_node_count_one_identification() {
        let text = "[iface.veth0]\n[module.wire]\nkind = 'eth'\niface = 'veth0'\n\
                    [module.cut]\nkind = 'fragment'\ndown = 'wire.up'\n\
                    [module.too]\nkind = 'fragment'\ndown = 'wire.up'\n";
        let config = ashway_config::parse(FsPath::new("test.toml"), text.as_bytes()).unwrap();
        let links = [(0, link())].into_iter().collect();
        let served = NodeServices::new().unwrap();
        let first = graph(&config, &links, &[], &served).unwrap();
        let next =
            graph_behind(&first, &config, &links, &[], &served, &Changed::default()).unwrap();
        // Theirs, and the node's own: the graph that follows has the same modules.
        assert_eq!(Arc::strong_count(&served.identification), 3);
        drop((first, next));
        assert_eq!(Arc::strong_count(&served.identification), 1);
        // Two nodes do not begin at the same number.
        let other = NodeServices::new().unwrap();
        let first = |served: &NodeServices| served.identification.load(Ordering::Relaxed);
        assert_ne!(first(&served), first(&other));
    }
}
