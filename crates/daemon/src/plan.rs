//! Who gets which row, ring and slot: arithmetic over the configuration.
//!
//! Pure, so that both the programs and the worker can be made from one plan
//! and cannot disagree. [`draw`] makes it; [`Plan::add_path`] and
//! [`Plan::remove_path`] change it while the node runs, without moving what is
//! there.

use ashway_abi::Leaf;
use ashway_abi::context::flag;
use ashway_abi::memory::Layout;
use ashway_abi::trusted::{MAX_PATHS, MAX_RINGS};
use ashway_codegen::instance::Behind;

use crate::config::{Config, PathConfig};
use crate::{live, relays};

/// Rows for paths that are bound while the node runs. A row is used once, so
/// that nobody's messages are counted as another's.
pub(crate) const SPARE_ROWS: usize = 1024;

/// Places in an interface's program array: its paths at one time.
pub(crate) const SLOTS: usize = 1024;

/// What the plan needs to know of an interface.
#[derive(Clone, Copy, Debug)]
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
    /// The row of all paths that run in the user tier as a whole.
    pub(crate) live_row: u32,
    /// Rows of counters, those of relays in the kernel tier behind them.
    pub(crate) rows: usize,
    /// The first row that nobody has had.
    next_row: usize,
    /// The next [`InstancePlan::id`].
    next_instance: u32,
}

/// Why there is no room for a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The interface has all the paths it can have.
    Iface(usize),
    /// The interface (first) has no ring in the handler's memory (second).
    Ring(usize, usize),
    /// The handler has all the paths it can have: this many.
    Handler(usize),
    /// The handler has work left of paths that are gone, and no other number.
    Busy,
    /// Every row of counters has been used.
    Rows,
}

/// An interface's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IfacePlan {
    /// Its row, for frames that match no path.
    pub(crate) unmatched_row: u32,
    /// Its paths.
    pub(crate) paths: Vec<usize>,
}

/// An instance's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstancePlan {
    /// Its number, which no other of the node ever has: its place in the lists
    /// changes when one before it is unloaded. Given by the plan that it comes into.
    pub(crate) id: u32,
    /// Its paths.
    pub(crate) paths: Vec<usize>,
    /// Most paths it can have; its programs are made for so many.
    pub(crate) most_paths: usize,
    /// Whose messages wait for those of the kernel tier.
    pub(crate) behind: Behind,
    /// For each of its interfaces, the ring of receive queue 0; the further
    /// queues follow.
    pub(crate) rings_of: Vec<(usize, usize)>,
    /// Rings in all.
    pub(crate) rings: usize,
    /// Room for one payload.
    pub(crate) slot_bytes: usize,
}

impl InstancePlan {
    /// The plan of a handler that may be bound to any interface: rings for each,
    /// in their order, as long as there is room.
    #[must_use]
    pub(crate) fn unbound(facts: &[IfaceFacts]) -> Self {
        let mut plan = Self {
            id: 0,
            paths: Vec::new(),
            most_paths: MAX_PATHS,
            behind: Behind::Ring,
            rings_of: Vec::new(),
            rings: 0,
            slot_bytes: 2048,
        };
        for (iface, facts) in facts.iter().enumerate() {
            if plan.rings + facts.queues <= MAX_RINGS {
                plan.add_rings(iface, facts);
            }
        }
        plan
    }

    /// The plan of the instance whose rings hold whole frames. Its paths are the
    /// keys of [relays](relays::key) and, behind them, of [other paths](live::key).
    #[must_use]
    pub(crate) fn carrier(facts: &[IfaceFacts]) -> Self {
        Self {
            most_paths: relays::KEYS + live::KEYS,
            behind: Behind::Path {
                parted: relays::KEYS,
            },
            ..Self::unbound(facts)
        }
    }

    fn add_rings(&mut self, iface: usize, facts: &IfaceFacts) {
        self.rings_of.push((iface, self.rings));
        self.rings += facts.queues;
        let longest = facts.mtu.next_power_of_two();
        self.slot_bytes = self.slot_bytes.max(longest).min(4096);
    }

    /// The ring of an interface's receive queue 0.
    #[must_use]
    pub(crate) fn ring_base(&self, iface: usize) -> Option<usize> {
        self.rings_of
            .iter()
            .find(|(known, _)| *known == iface)
            .map(|(_, base)| *base)
    }

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
    pub(crate) fn layout(&self, guest_bytes: usize, state_bytes: usize) -> Layout {
        Layout {
            guest_bytes,
            state_bytes,
            rings: self.rings,
            slot_bytes: self.slot_bytes,
            endpoint_slots: 0,
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
    let mut instances: Vec<InstancePlan> = (0..)
        .zip(&config.handlers)
        .map(|(id, _)| InstancePlan {
            id,
            paths: Vec::new(),
            most_paths: MAX_PATHS,
            behind: Behind::Ring,
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
            if plan.ring_base(iface).is_none() {
                plan.add_rings(iface, &facts[iface]);
            }
        }
        paths.push(PathPlan {
            row: (config.ifaces.len() + 1 + number) as u32,
            instance,
            local,
            slots,
        });
    }
    for plan in &mut instances {
        match plan.paths.len() {
            // Nobody has said yet where it is to be bound.
            0 => {
                *plan = InstancePlan {
                    id: plan.id,
                    ..InstancePlan::unbound(facts)
                }
            }
            // The programs of a handler of one path need not ask which it is.
            1 => plan.most_paths = 1,
            _ => {}
        }
    }
    let next_row = config.ifaces.len() + 1 + paths.len();
    Plan {
        live_row: config.ifaces.len() as u32,
        rows: next_row + SPARE_ROWS,
        next_row,
        next_instance: instances.len() as u32,
        ifaces,
        instances,
        paths,
    }
}

impl Plan {
    /// The row of what the kernel tier counts of the relay with this number.
    #[must_use]
    pub(crate) const fn relay_row(&self, number: usize) -> u32 {
        (self.rows + number) as u32
    }

    /// Rows of counters in all.
    #[must_use]
    pub(crate) const fn all_rows(&self) -> usize {
        self.rows + relays::MOST
    }

    /// Adds an instance behind the others, with no path yet; its id.
    pub(crate) fn add_instance(&mut self, mut plan: InstancePlan) -> u32 {
        plan.id = self.next_instance;
        self.next_instance += 1;
        self.instances.push(plan);
        self.next_instance - 1
    }

    /// Removes an instance without paths; those behind it move up by one, their ids
    /// stay.
    pub(crate) fn remove_instance(&mut self, instance: usize) {
        self.instances.remove(instance);
        for path in &mut self.paths {
            debug_assert_ne!(path.instance, instance, "it has paths");
            path.instance -= usize::from(path.instance > instance);
        }
    }

    /// Numbers for one more path of `instance` at `ifaces`, without changing the
    /// plan. `with_rings` says of an interface whether it needs a ring, `is_idle`
    /// of a number within the instance whether its former path has nothing
    /// underway.
    ///
    /// # Errors
    ///
    /// What there is no room for.
    pub(crate) fn place(
        &self,
        instance: usize,
        ifaces: &[usize],
        with_rings: impl Fn(usize) -> bool,
        is_idle: impl Fn(usize) -> bool,
    ) -> Result<PathPlan, NoRoom> {
        if self.next_row == self.rows {
            return Err(NoRoom::Rows);
        }
        let numbers = &self.instances[instance];
        let local = (0..numbers.most_paths)
            .find(|local| {
                let taken = |path: &usize| self.paths[*path].local == *local;
                !numbers.paths.iter().any(taken) && is_idle(*local)
            })
            .ok_or(if numbers.paths.len() < numbers.most_paths {
                NoRoom::Busy
            } else {
                NoRoom::Handler(numbers.most_paths)
            })?;
        let mut slots = Vec::new();
        for &iface in ifaces {
            if with_rings(iface) && numbers.ring_base(iface).is_none() {
                return Err(NoRoom::Ring(iface, instance));
            }
            let slot = (0..SLOTS)
                .find(|slot| {
                    let taken = |path: &usize| self.slot(*path, iface) == Some(*slot);
                    !self.ifaces[iface].paths.iter().any(taken)
                })
                .ok_or(NoRoom::Iface(iface))?;
            slots.push((iface, slot));
        }
        Ok(PathPlan {
            row: self.next_row as u32,
            instance,
            local,
            slots,
        })
    }

    /// Adds a path behind the others, with numbers from [`place`](Self::place).
    pub(crate) fn add_path(&mut self, numbers: PathPlan) {
        let path = self.paths.len();
        self.next_row += 1;
        self.instances[numbers.instance].paths.push(path);
        for &(iface, _) in &numbers.slots {
            self.ifaces[iface].paths.push(path);
        }
        self.paths.push(numbers);
    }

    /// Removes a path; those behind it move up by one in every list, their
    /// numbers stay.
    pub(crate) fn remove_path(&mut self, path: usize) {
        self.paths.remove(path);
        let instances = self.instances.iter_mut().map(|plan| &mut plan.paths);
        let ifaces = self.ifaces.iter_mut().map(|plan| &mut plan.paths);
        for list in instances.chain(ifaces) {
            list.retain(|known| *known != path);
            for known in list {
                *known -= usize::from(*known > path);
            }
        }
    }

    /// A path's slot at an interface, if it has one there.
    #[must_use]
    pub(crate) fn slot(&self, path: usize, iface: usize) -> Option<usize> {
        self.paths[path]
            .slots
            .iter()
            .find(|(known, _)| *known == iface)
            .map(|(_, slot)| *slot)
    }

    /// What the entry program of an interface has to know of a path, which is
    /// `config`'s of that number.
    #[must_use]
    pub(crate) fn leaf(&self, iface: usize, path: usize, config: &PathConfig) -> Leaf {
        use crate::config::OnFault;
        let numbers = &self.paths[path];
        let slot = self.slot(path, iface);
        let ring_base = self.instances[numbers.instance].ring_base(iface);
        Leaf {
            row: numbers.row,
            local: numbers.local as u32,
            ring_base: ring_base.expect("its instance has rings for each interface") as u32,
            flags: match config.on_fault {
                OnFault::Drop => flag::ON_FAULT_DROP,
                _ => 0,
            },
            slot: slot.expect("a path has a slot at each of its interfaces") as u32,
            path: path as u32,
        }
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
        assert_eq!(
            (plan.live_row, plan.paths[0].row, plan.paths[1].row),
            (2, 3, 4)
        );
        assert_eq!(plan.rows, 5 + SPARE_ROWS);

        // Paths come and go; nobody else's numbers change, and no row returns.
        let mut plan = plan;
        let anywhere = |_| true;
        let third = plan.place(0, &[0, 1], anywhere, anywhere).unwrap();
        assert_eq!((third.row, third.local), (5, 2));
        assert_eq!(third.slots, [(0, 1), (1, 2)]);
        plan.add_path(third.clone());
        let second = plan.paths[1].clone();
        plan.remove_path(0);
        assert_eq!(plan.paths, [second, third]);
        assert_eq!(plan.ifaces[0].paths, [1]);
        assert_eq!(plan.ifaces[1].paths, [0, 1]);
        let fourth = plan.place(0, &[1], anywhere, |local| local != 0).unwrap();
        assert_eq!((fourth.row, fourth.local), (6, 3));
        assert_eq!(fourth.slots, [(1, 0)]);

        // Instances too: the paths of those behind follow, ids do not return.
        let other = plan.add_instance(InstancePlan::unbound(&facts));
        let third = plan.add_instance(InstancePlan::unbound(&facts));
        assert_eq!((other, third), (1, 2));
        let path = plan.place(2, &[0], anywhere, anywhere).unwrap();
        plan.add_path(path);
        plan.remove_instance(1);
        assert_eq!((plan.paths[2].instance, plan.instances[1].id), (1, 2));
        assert_eq!(plan.instances[1].paths, [2]);
        assert_eq!(plan.paths[0].instance, 0);
        assert_eq!(plan.add_instance(InstancePlan::unbound(&facts)), 3);
    }

    #[test]
    fn what_is_full_is_named() {
        let facts = [IfaceFacts {
            queues: MAX_RINGS,
            mtu: 1500,
        }; 2];
        let mut plan = Plan {
            ifaces: vec![
                IfacePlan {
                    unmatched_row: 0,
                    paths: Vec::new(),
                };
                2
            ],
            instances: vec![InstancePlan::unbound(&facts); 2 + SLOTS / MAX_PATHS],
            paths: Vec::new(),
            live_row: 2,
            rows: 3 + SLOTS + 1,
            next_row: 3,
            next_instance: 0,
        };
        assert_eq!(plan.instances[0].rings, MAX_RINGS);
        let place =
            |plan: &Plan, instance, iface| plan.place(instance, &[iface], |_| true, |_| true);
        assert_eq!(place(&plan, 0, 1), Err(NoRoom::Ring(1, 0)));
        for _ in 0..MAX_PATHS {
            let numbers = place(&plan, 0, 0).unwrap();
            plan.add_path(numbers);
        }
        assert_eq!(place(&plan, 0, 0), Err(NoRoom::Handler(MAX_PATHS)));
        let busy = plan.place(1, &[0], |_| true, |_| false);
        assert_eq!(busy, Err(NoRoom::Busy));
        for number in MAX_PATHS..SLOTS {
            let numbers = place(&plan, number / MAX_PATHS, 0).unwrap();
            plan.add_path(numbers);
        }
        let last = SLOTS / MAX_PATHS;
        assert_eq!(place(&plan, last, 0), Err(NoRoom::Iface(0)));
        let numbers = plan.place(last, &[1], |_| false, |_| true).unwrap();
        plan.add_path(numbers);
        plan.remove_path(0);
        assert_eq!(place(&plan, last, 0), Err(NoRoom::Rows));
    }
}
