//! Handlers that have an instance for each CPU (`instances = "per-cpu"`).
//!
//! Such a handler is as many handlers as there are CPUs, and a path that ends in it as many
//! paths: each has a memory, a queue, a lock, rows and programs of its own, as all have, and
//! nothing else knows that there are several. What makes them one is that messages are led by one
//! filter to the first, and by the entry program on to the one of their CPU
//! ([`flag::PER_CPU`](ashway_abi::context::flag::PER_CPU)), and the name: `counter@1` is what
//! `counter` is on CPU 1. No name that somebody gives has an `@`.

mod refused;

use std::collections::BTreeMap;
use std::sync::Arc;

use ashway_abi::leaf::MAX_SLOTS;
use ashway_api::Instances;

use crate::types::{Config, HandlerConfig, PathConfig};

pub(crate) use refused::check;

/// Most CPUs of a machine on which a handler may have an instance for each: as many memories,
/// programs and rows each has.
pub const MOST_CPUS: u32 = 64;

/// What a handler or a path is called on a CPU.
#[must_use]
pub fn instance_name(name: &str, cpu: u32) -> String {
    format!("{name}@{cpu}")
}

/// Of which handler or path this is one, and on which CPU, if it is one of several.
#[must_use]
pub fn instance_of(name: &str) -> Option<(&str, u32)> {
    let (of, cpu) = name.rsplit_once('@')?;
    Some((of, cpu.parse().ok()?))
}

/// What it is called in the file, or by whoever loaded it.
#[must_use]
pub fn whole_name(name: &str) -> &str {
    instance_of(name).map_or(name, |(of, _)| of)
}

impl HandlerConfig {
    /// Its instances on a machine of so many CPUs: itself, if it has one.
    #[must_use]
    pub fn each(&self, cpus: u32) -> Vec<Self> {
        if self.instances != Instances::PerCpu || self.cpu.is_some() {
            return vec![self.clone()];
        }
        let on = |cpu| Self {
            name: instance_name(&self.name, cpu),
            cpu: Some(cpu),
            ..self.clone()
        };
        (0..cpus).map(on).collect()
    }
}

impl PathConfig {
    /// The paths that lead to each of so many instances of its handler.
    #[must_use]
    pub fn each(&self, cpus: u32) -> Vec<Arc<Self>> {
        let on = |cpu| Self {
            name: instance_name(&self.name, cpu),
            handler: instance_name(&self.handler, cpu),
            cpu: Some(cpu),
            ..self.clone()
        };
        (0..cpus).map(|cpu| Arc::new(on(cpu))).collect()
    }
}

impl Config {
    /// The same on a machine of so many CPUs: handlers that have an instance for each, and paths
    /// that end in them, are as many.
    ///
    /// # Errors
    ///
    /// What there is no room for, with its line, and what to do about it.
    pub fn on_cpus(&self, cpus: u32) -> Result<Self, (usize, [String; 2])> {
        let mut several = self.handlers.iter();
        let several = several.find(|one| one.instances == Instances::PerCpu);
        if let Some(handler) = several.filter(|_| cpus > MOST_CPUS) {
            let message = format!(
                "handler `{}` has `instances = \"per-cpu\"`, and this machine has {cpus} CPUs: \
                 {MOST_CPUS} are the most",
                handler.name
            );
            let hint = "leave `instances` out: one instance serves all CPUs, one at a time";
            return Err((handler.line, [message, hint.to_owned()]));
        }
        let mut paths = Vec::with_capacity(self.paths.len());
        let mut slots: BTreeMap<&str, usize> = BTreeMap::new();
        for path in &self.paths {
            let handler = self.handler(&path.handler);
            let each = match handler.filter(|_| path.cpu.is_none()) {
                Some(handler) if handler.instances == Instances::PerCpu => path.each(cpus),
                _ => vec![Arc::clone(path)],
            };
            for iface in &path.ifaces {
                let taken = slots.entry(iface).or_default();
                *taken += each.len();
                if *taken > MAX_SLOTS {
                    let message = format!(
                        "path `{}` takes {} of the {MAX_SLOTS} places that `{iface}` has for \
                         paths with a handler, and there are not so many left",
                        path.name,
                        each.len()
                    );
                    let hint = "a path of a handler with `instances = \"per-cpu\"` takes one for \
                                each CPU; `or` in a `match` leads more messages to the same path";
                    return Err((path.line, [message, hint.to_owned()]));
                }
            }
            paths.extend(each);
        }
        let handlers = self.handlers.iter();
        Ok(Self {
            handlers: handlers.flat_map(|handler| handler.each(cpus)).collect(),
            paths,
            ..self.clone()
        })
    }

    /// The handler of this name, or the first of its instances.
    #[must_use]
    pub fn some_instance(&self, handler: &str) -> Option<&HandlerConfig> {
        let mut handlers = self.handlers.iter();
        handlers.find(|one| one.name == handler || whole_name(&one.name) == handler)
    }

    /// Whether this is a handler that has an instance for each CPU, or one of these.
    #[must_use]
    pub fn is_per_cpu(&self, handler: &str) -> bool {
        let handler = self.some_instance(handler);
        handler.is_some_and(|one| one.instances == Instances::PerCpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Diagnostics;
    use std::path::Path as FsPath;

    fn read(path: &str, handler: &str, sections: &str) -> Result<Config, Diagnostics> {
        let text = format!(
            "[iface.a]\n[handler.h]\nfile = \"Cargo.toml\"\ninstances = \"per-cpu\"\n{handler}\
             [path.p]\niface = \"a\"\nmatch = \"udp dst port 1\"\nhandler = \"h\"\n{path}\
             [handler.one]\nfile = \"Cargo.toml\"\n\
             [path.q]\niface = \"a\"\nmatch = \"udp dst port 2\"\nhandler = \"one\"\n{sections}"
        );
        let file = FsPath::new(env!("CARGO_MANIFEST_DIR")).join("test.toml");
        crate::parse(&file, text.as_bytes())
    }

    fn config() -> Config {
        read("", "", "").unwrap()
    }

    #[test]
    fn a_handler_is_one_for_each_cpu_and_so_are_its_paths() {
        let all = config().on_cpus(3).unwrap();
        let handlers = all.handlers.iter();
        let handlers: Vec<_> = handlers.map(|one| (&*one.name, one.cpu)).collect();
        assert_eq!(
            handlers,
            [
                ("h@0", Some(0)),
                ("h@1", Some(1)),
                ("h@2", Some(2)),
                ("one", None)
            ]
        );
        let paths = all.paths.iter();
        let paths: Vec<_> = paths.map(|one| (&*one.name, &*one.handler)).collect();
        assert_eq!(
            paths,
            [("p@0", "h@0"), ("p@1", "h@1"), ("p@2", "h@2"), ("q", "one")]
        );
        // A second time nothing is left to do.
        let again = all.on_cpus(3).unwrap();
        assert!(again.paths.iter().eq(&all.paths));
        assert_eq!(again.handlers, all.handlers);
        assert!(["h", "h@1"].iter().all(|name| all.is_per_cpu(name)));
        assert!(!all.is_per_cpu("one") && !all.is_per_cpu("x"));
    }

    #[test]
    fn names_are_taken_apart_as_they_were_made() {
        assert_eq!(instance_of(&instance_name("h", 12)), Some(("h", 12)));
        assert_eq!((instance_of("h"), instance_of("h@x")), (None, None));
        assert_eq!((whole_name("h@1"), whole_name("h")), ("h", "h"));
        assert!(!crate::is_name("h@1"));
    }

    #[test]
    fn what_only_one_instance_could_have_is_refused_at_its_line() {
        let graph = "[module.more]\nkind = \"handler\"\nhandler = \"h\"\ndown = \"udp.up\"\n";
        let layer = "[path.r]\niface = \"a\"\nmatch = \"ip proto 89\"\nlayer = \"ip\"\n\
                     handler = \"h\"\n";
        for (path, handler, sections, line, word) in [
            ("share = \"10 %\"\n", "", "", 9, "a share is an account"),
            ("rate = \"10/s\"\n", "", "", 9, "a share is an account"),
            (
                "order = \"path\"\n",
                "",
                "",
                9,
                "do not wait for each other",
            ),
            ("", "send_port = 5\n", "", 5, "would send from port 5"),
            ("", "", graph, 4, "does not say by which CPU"),
            ("", "", layer, 15, "does not say by which CPU"),
        ] {
            let refused = read(path, handler, sections).unwrap_err();
            let (at, said) = refused.by_line().next().unwrap();
            assert!(said.message.contains(word), "{word}: {}", said.message);
            assert_eq!((refused.list().len(), at), (1, line), "{word}");
        }
        let mut socket = config();
        socket.ifaces[0].attach = crate::Attach::Packet;
        let (key, message, _) = socket.may_be_split(&socket.paths[0]).unwrap_err();
        assert_eq!(key, "iface");
        assert!(message.contains("nobody there says"), "{message}");
        assert!(socket.may_be_split(&socket.paths[1]).is_ok());
    }

    #[test]
    fn one_that_runs_on_all_cpus_at_once_is_one() {
        let parallel = |path: &str| {
            let text = format!(
                "[iface.a]\nattach = \"packet\"\n[handler.h]\nfile = \"Cargo.toml\"\n\
                 instances = \"parallel\"\nsend_port = 5\n[path.p]\niface = \"a\"\n\
                 match = \"udp dst port 1\"\nhandler = \"h\"\n{path}"
            );
            let file = FsPath::new(env!("CARGO_MANIFEST_DIR")).join("test.toml");
            crate::parse(&file, text.as_bytes())
        };
        let config = parallel("").unwrap().on_cpus(3).unwrap();
        assert_eq!((config.handlers.len(), config.paths.len()), (1, 1));
        assert!(!config.is_per_cpu("h"));
        for (path, word) in [
            ("share = \"10 %\"\n", "a share is an account"),
            ("order = \"path\"\n", "do not wait for each other"),
        ] {
            let refused = parallel(path).unwrap_err();
            let (at, said) = refused.by_line().next().unwrap();
            assert!(said.message.contains(word), "{word}: {}", said.message);
            assert!(said.message.contains("`instances = \"parallel\"`"));
            assert_eq!((refused.list().len(), at), (1, 11), "{word}");
        }
    }

    #[test]
    fn there_is_room_for_so_many_cpus() {
        let config = config();
        assert!(config.on_cpus(MOST_CPUS).is_ok());
        let (line, [message, _]) = config.on_cpus(MOST_CPUS + 1).unwrap_err();
        assert_eq!(line, 2);
        assert!(message.contains("65 CPUs"), "{message}");
        let mut many = config;
        let path = Arc::clone(&many.paths[0]);
        many.paths
            .extend(vec![path; MAX_SLOTS / MOST_CPUS as usize]);
        let (_, [message, _]) = many.on_cpus(MOST_CPUS).unwrap_err();
        assert!(message.contains("takes 64 of the 1024 places"), "{message}");
    }
}
