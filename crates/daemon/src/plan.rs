//! Who gets which row, ring and slot: arithmetic over the configuration.
//!
//! Pure, so that both the programs and the worker can be made from one plan
//! and cannot disagree.

use ashway_abi::memory::Layout;

use crate::config::Config;

/// What the plan needs to know of an interface.
#[derive(Clone, Debug)]
pub(crate) struct IfaceFacts {
    /// Receive queues.
    pub(crate) queues: usize,
    /// Largest payload of a frame, in bytes.
    pub(crate) mtu: usize,
}

/// Numbers for everything in a configuration; lists are parallel to its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Interfaces.
    pub(crate) ifaces: Vec<IfacePlan>,
    /// Instances, one per handler that a path uses or not.
    pub(crate) instances: Vec<InstancePlan>,
    /// Paths.
    pub(crate) paths: Vec<PathPlan>,
    /// Rows of counters in all.
    pub(crate) rows: usize,
}

/// An interface's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IfacePlan {
    /// Its row, for frames that match no path.
    pub(crate) unmatched_row: u32,
    /// Its paths; the position is the slot.
    pub(crate) paths: Vec<usize>,
}

/// An instance's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstancePlan {
    /// Its paths; the position is the path's number within the instance.
    pub(crate) paths: Vec<usize>,
    /// For each of its interfaces, the ring of receive queue 0; the further
    /// queues follow.
    pub(crate) rings_of: Vec<(usize, usize)>,
    /// Rings in all.
    pub(crate) rings: usize,
    /// Room for one payload.
    pub(crate) slot_bytes: usize,
}

impl InstancePlan {
    /// The interface a ring belongs to.
    #[must_use]
    pub(crate) fn iface_of(&self, ring: usize) -> usize {
        let mut found = 0;
        for &(iface, base) in &self.rings_of {
            if ring >= base {
                found = iface;
            }
        }
        found
    }

    /// Where the regions of its memory lie.
    #[must_use]
    pub(crate) fn layout(&self, guest_bytes: usize) -> Layout {
        Layout {
            guest_bytes,
            rings: self.rings,
            slot_bytes: self.slot_bytes,
        }
    }
}

/// A path's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPlan {
    /// Its row.
    pub(crate) row: u32,
    /// Its instance.
    pub(crate) instance: usize,
    /// Its number within the instance.
    pub(crate) local: usize,
    /// Its interfaces, with its slot at each.
    pub(crate) slots: Vec<(usize, usize)>,
}

/// Draws the plan. `facts` is parallel to `config.ifaces`.
#[must_use]
pub(crate) fn draw(config: &Config, facts: &[IfaceFacts]) -> Plan {
    let iface_number = |name: &str| {
        config
            .ifaces
            .iter()
            .position(|iface| iface.name == name)
            .expect("a checked configuration names interfaces that it has")
    };
    let mut ifaces: Vec<IfacePlan> = (0..config.ifaces.len())
        .map(|i| IfacePlan {
            unmatched_row: i as u32,
            paths: Vec::new(),
        })
        .collect();
    let mut instances: Vec<InstancePlan> = config
        .handlers
        .iter()
        .map(|_| InstancePlan {
            paths: Vec::new(),
            rings_of: Vec::new(),
            rings: 0,
            slot_bytes: 2048,
        })
        .collect();
    let mut paths = Vec::new();
    for (number, path) in config.paths.iter().enumerate() {
        let instance = config
            .handlers
            .iter()
            .position(|handler| handler.name == path.handler)
            .expect("a checked configuration names handlers that it has");
        let plan = &mut instances[instance];
        plan.paths.push(number);
        let local = plan.paths.len() - 1;
        let mut slots = Vec::new();
        for name in &path.ifaces {
            let iface = iface_number(name);
            ifaces[iface].paths.push(number);
            slots.push((iface, ifaces[iface].paths.len() - 1));
            if !plan.rings_of.iter().any(|&(known, _)| known == iface) {
                plan.rings_of.push((iface, plan.rings));
                plan.rings += facts[iface].queues;
            }
            let longest = facts[iface].mtu.next_power_of_two();
            plan.slot_bytes = plan.slot_bytes.max(longest).min(4096);
        }
        paths.push(PathPlan {
            row: (config.ifaces.len() + number) as u32,
            instance,
            local,
            slots,
        });
    }
    Plan {
        rows: config.ifaces.len() + paths.len(),
        ifaces,
        instances,
        paths,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path as FsPath;

    #[test]
    fn one_handler_on_two_interfaces_has_a_ring_for_each_queue() {
        let directory = std::env::temp_dir().join(format!("ashway-plan-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("h.wasm"), b"").unwrap();
        let text = r#"
            [iface.a]
            [iface.b]
            [handler.h]
            file = "h.wasm"
            [path.one]
            iface = ["a", "b"]
            match = "udp and dst port 1"
            handler = "h"
            [path.two]
            iface = "b"
            match = "udp and dst port 2"
            handler = "h"
        "#;
        let file = directory.join("node.toml");
        let config = crate::config::parse(FsPath::new(&file), text.as_bytes()).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let facts = [
            IfaceFacts {
                queues: 2,
                mtu: 1500,
            },
            IfaceFacts {
                queues: 3,
                mtu: 3000,
            },
        ];
        let plan = draw(&config, &facts);
        assert_eq!(plan.instances[0].rings_of, [(0, 0), (1, 2)]);
        assert_eq!(plan.instances[0].rings, 5);
        assert_eq!(plan.instances[0].slot_bytes, 4096);
        assert_eq!(plan.instances[0].iface_of(1), 0);
        assert_eq!(plan.instances[0].iface_of(4), 1);
        assert_eq!(plan.paths[0].slots, [(0, 0), (1, 0)]);
        assert_eq!(plan.paths[1].slots, [(1, 1)]);
        assert_eq!((plan.paths[0].row, plan.paths[1].row, plan.rows), (2, 3, 4));
    }
}
