//! Who gets which row, number and slot: arithmetic over the configuration.
//!
//! Rows of paths that are bound later come from [`Rows`](crate::rows::Rows).
//! Pure, so that both the programs and the worker can be made from one plan
//! and cannot disagree. [`draw`] makes it; [`Plan::add_path`] and
//! [`Plan::remove_path`] change it while the node runs, without moving what is
//! there: handlers and paths are known by ids that are never another's.

use std::collections::{BTreeMap, BTreeSet};

use ashway_abi::Leaf;
use ashway_abi::context::flag;
use ashway_abi::leaf::MAX_SLOTS;
use ashway_path::places::{Ids, PathId};
use ashway_path::stage::Direction;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::queue_plan::{IfaceFacts, QueuePlan};
use crate::relays;
use crate::rows::{CounterRow, Rows};
use crate::target::Target;
use crate::ticket;
use ashway_config::{Config, PathConfig};

/// Rows for paths that are bound while the node runs, beside those of the configuration's.
pub(crate) const SPARE_ROWS: usize = 1024;

/// A handler's id, which no other of the node ever has. A later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HandlerId(u32);

/// Numbers for everything that a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Interfaces, in the order of the configuration: they do not come or go.
    pub ifaces: Vec<IfacePlan>,
    /// The instances of handlers, whether a path uses them or not.
    pub instances: BTreeMap<HandlerId, InstancePlan>,
    /// Paths, in the order in which they came.
    pub paths: IndexMap<PathId, PathPlan>,
    /// The row of all paths that run in the user tier as a whole.
    pub module_row: CounterRow,
    /// Rows of counters, those of relays in the kernel tier behind them.
    pub(crate) rows: usize,
    next_handler: HandlerId,
}

/// Why there is no room for a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The interface has all the paths it can have.
    Iface(usize),
    /// The interface (first) has no ring in the handler's memory (second).
    Ring(usize, HandlerId),
    /// The handler has all the paths it can have: this many.
    Handler(usize),
    /// The handler has work left of paths that are gone, and no other number.
    Busy,
}

/// An interface's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfacePlan {
    /// Its row, for frames that match no path.
    pub unmatched_row: CounterRow,
    /// Its paths.
    pub paths: Vec<PathId>,
}

/// An instance's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstancePlan {
    /// Its paths.
    pub paths: Vec<PathId>,
    /// Those of its queue, where there are programs.
    pub queue: QueuePlan,
}

impl InstancePlan {
    /// The plan of a handler that may be bound to any interface.
    #[must_use]
    pub fn unbound(facts: &[IfaceFacts]) -> Self {
        Self {
            paths: Vec::new(),
            queue: QueuePlan::unbound(facts),
        }
    }
}

/// A path's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlan {
    /// What the worker has of it: a path for each of its interfaces.
    pub runs: Vec<PathId>,
    /// Its row.
    pub row: CounterRow,
    /// Its handler.
    pub handler: HandlerId,
    /// Its number within the instance.
    pub local: usize,
    /// Its interfaces, with its slot at each.
    pub slots: Vec<(usize, usize)>,
    /// Which of its handler's instances it leads to: where there is one for each CPU, demux leads
    /// to the first, and the entry program by the CPU's number to the others, whose rows and slots
    /// lie behind.
    pub nth: usize,
}

impl PathPlan {
    /// Its id, which no other path of the node ever has: its row is another's when it has
    /// gone.
    ///
    /// # Panics
    ///
    /// If it is at no interface, which a checked configuration does not ask for.
    #[must_use]
    pub fn id(&self) -> PathId {
        self.runs[0]
    }
}

/// Draws the plan. `facts` is parallel to `config.ifaces`.
///
/// # Panics
///
/// If a path names what the configuration does not have, which a checked one does not; and if
/// there are more rows than a [ticket](crate::ticket) has bits for, some 260,000 paths of handlers.
#[must_use]
pub fn draw(config: &Config, facts: &[IfaceFacts], ids: &mut Ids) -> Plan {
    let iface_number = |name: &str| {
        config
            .ifaces
            .iter()
            .position(|iface| iface.name == name)
            .expect("a checked configuration names interfaces that it has")
    };
    let mut ifaces: Vec<IfacePlan> = (0..config.ifaces.len())
        .map(|i| IfacePlan {
            unmatched_row: CounterRow(i as u32),
            paths: Vec::new(),
        })
        .collect();
    let mut next_handler = HandlerId(0);
    let mut instances = BTreeMap::new();
    let mut by_name = BTreeMap::new();
    for handler in &config.handlers {
        by_name.insert(handler.name.as_str(), next_handler);
        instances.insert(next_handler, InstancePlan::unbound(facts));
        next_handler.0 += 1;
    }
    let mut paths: IndexMap<PathId, PathPlan> = IndexMap::new();
    for (row, path) in (config.ifaces.len() as u32 + 1..).zip(&config.paths) {
        let handler = by_name.get(path.handler.as_str());
        let handler = *handler.expect("a checked configuration names handlers that it has");
        let runs: Vec<PathId> = path.ifaces.iter().map(|_| ids.take()).collect();
        let plan = instances.get_mut(&handler).expect("all have one");
        plan.paths.push(runs[0]);
        let local = plan.paths.len() - 1;
        let mut slots = Vec::new();
        for name in &path.ifaces {
            let iface = iface_number(name);
            ifaces[iface].paths.push(runs[0]);
            slots.push((iface, ifaces[iface].paths.len() - 1));
        }
        let plan = PathPlan {
            runs,
            row: CounterRow(row),
            handler,
            local,
            slots,
            nth: path.cpu.map_or(0, |cpu| cpu as usize),
        };
        paths.insert(plan.id(), plan);
    }
    for plan in instances.values_mut() {
        let mut used = Vec::new();
        for (iface, _) in plan.paths.iter().flat_map(|path| &paths[path].slots) {
            if !used.contains(iface) {
                used.push(*iface);
            }
        }
        // Of one without paths nobody has said yet where it is to be bound.
        if !used.is_empty() {
            plan.queue = QueuePlan::of_ifaces(&used, facts);
        }
    }
    let plan = Plan {
        module_row: CounterRow(config.ifaces.len() as u32),
        rows: config.ifaces.len() + 1 + paths.len() + SPARE_ROWS,
        next_handler,
        ifaces,
        instances,
        paths,
    };
    assert!(
        plan.all_rows() <= ticket::MOST_ROWS,
        "a ticket has no bits for more rows"
    );
    plan
}

impl Plan {
    /// The row of what the kernel tier counts of the relay with this number.
    #[must_use]
    pub const fn relay_row(&self, number: usize) -> CounterRow {
        CounterRow((self.rows + number) as u32)
    }

    /// Rows of counters in all.
    #[must_use]
    pub const fn all_rows(&self) -> usize {
        self.rows + relays::MOST
    }

    /// The rows for paths that are bound while the node runs.
    #[must_use]
    pub fn spare_rows<U>(&self) -> Rows<U> {
        let spare = self.rows - SPARE_ROWS..self.rows;
        Rows::new(spare.map(|row| row as u32), self.paths.len())
    }

    /// Adds an instance with no path yet; its id.
    pub fn add_instance(&mut self, plan: InstancePlan) -> HandlerId {
        let id = self.next_handler;
        self.next_handler.0 += 1;
        self.instances.insert(id, plan);
        id
    }

    /// Removes an instance without paths.
    pub fn remove_instance(&mut self, id: HandlerId) {
        let removed = self.instances.remove(&id);
        debug_assert!(removed.is_some_and(|plan| plan.paths.is_empty()));
    }

    /// Numbers for one more path of a handler at `ifaces`, without changing the plan: for one to
    /// each of its instances, of which most have one. The first gets this row, and the others
    /// those behind it; at each interface their slots follow each other, too, and they have one
    /// number within their instances. `with_rings` says of an interface whether it needs a ring,
    /// `is_idle` of a number within an instance whether its former path has nothing underway.
    ///
    /// # Errors
    ///
    /// What there is no room for.
    ///
    /// # Panics
    ///
    /// If there is no instance.
    pub fn place(
        &self,
        ids: &mut Ids,
        row: CounterRow,
        instances: &[HandlerId],
        ifaces: &[usize],
        with_rings: impl Fn(usize) -> bool,
        is_idle: impl Fn(HandlerId, usize) -> bool,
    ) -> Result<Vec<PathPlan>, NoRoom> {
        let first = instances[0];
        let numbers = &self.instances[&first];
        let is_free = |handler: &HandlerId, local: usize| {
            let mut paths = self.instances[handler].paths.iter();
            !paths.any(|path| self.paths[path].local == local) && is_idle(*handler, local)
        };
        let local = (0..numbers.queue.most_paths)
            .find(|local| instances.iter().all(|handler| is_free(handler, *local)))
            .ok_or(if numbers.paths.len() < numbers.queue.most_paths {
                NoRoom::Busy
            } else {
                NoRoom::Handler(numbers.queue.most_paths)
            })?;
        let mut slots = Vec::new();
        for &iface in ifaces {
            if with_rings(iface) && numbers.queue.rings_at(iface).is_none() {
                return Err(NoRoom::Ring(iface, first));
            }
            let paths = self.ifaces[iface].paths.iter();
            let taken: BTreeSet<usize> = paths.filter_map(|path| self.slot(*path, iface)).collect();
            let last = MAX_SLOTS - instances.len();
            let slot = (0..=last)
                .find(|slot| taken.range(*slot..*slot + instances.len()).next().is_none())
                .ok_or(NoRoom::Iface(iface))?;
            slots.push((iface, slot));
        }
        let numbers = instances.iter().enumerate().map(|(nth, handler)| PathPlan {
            runs: slots.iter().map(|_| ids.take()).collect(),
            row: CounterRow(row.0 + nth as u32),
            handler: *handler,
            local,
            slots: slots
                .iter()
                .map(|(iface, slot)| (*iface, slot + nth))
                .collect(),
            nth,
        });
        Ok(numbers.collect())
    }

    /// Adds a path, with numbers from [`place`](Self::place).
    pub fn add_path(&mut self, numbers: PathPlan) {
        let id = numbers.id();
        if let Some(plan) = self.instances.get_mut(&numbers.handler) {
            plan.paths.push(id);
        }
        for &(iface, _) in &numbers.slots {
            self.ifaces[iface].paths.push(id);
        }
        self.paths.insert(id, numbers);
    }

    /// Removes a path that is there.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn remove_path(&mut self, id: PathId) -> PathPlan {
        let removed = self.paths.shift_remove(&id).expect("it is there");
        if let Some(plan) = self.instances.get_mut(&removed.handler) {
            plan.paths.retain(|known| *known != id);
        }
        for (iface, _) in &removed.slots {
            self.ifaces[*iface].paths.retain(|known| *known != id);
        }
        removed
    }

    /// Where demux leads for a path at an interface, if it is there and demux leads to it.
    #[must_use]
    pub fn target(&self, path: PathId, iface: usize) -> Option<Target> {
        let path = Some(&self.paths[&path]).filter(|path| path.nth == 0)?;
        let mut at = path.slots.iter().zip(&path.runs);
        let (_, run) = at.find(|((known, _), _)| *known == iface)?;
        Some(Target {
            path: *run,
            direction: Direction::Backward,
            row: path.row,
        })
    }

    /// The path that has this one of the worker's. Linear in all paths.
    #[must_use]
    pub fn path_of(&self, run: PathId) -> Option<PathId> {
        let mut paths = self.paths.iter();
        let (id, _) = paths.find(|(_, path)| path.runs.contains(&run))?;
        Some(*id)
    }

    /// A path's slot at an interface, if it has one there.
    #[must_use]
    pub fn slot(&self, path: PathId, iface: usize) -> Option<usize> {
        let mut slots = self.paths[&path].slots.iter();
        let (_, slot) = slots.find(|(known, _)| *known == iface)?;
        Some(*slot)
    }

    /// What the entry program of an interface has to know of a path, whose configuration
    /// this is.
    ///
    /// # Panics
    ///
    /// If it is none of the plan's.
    #[must_use]
    pub fn leaf(&self, iface: usize, path: PathId, config: &PathConfig) -> Leaf {
        use ashway_config::{OnFault, OrderRule};
        let numbers = &self.paths[&path];
        let slot = self.slot(path, iface);
        let rings = self.instances[&numbers.handler].queue.rings_at(iface);
        let rings = rings.expect("its instance has rings for each interface");
        let on_fault = match config.on_fault {
            OnFault::Drop => flag::ON_FAULT_DROP,
            OnFault::Pass | OnFault::Demote => 0,
        };
        let order = match config.order {
            OrderRule::Flow => 0,
            OrderRule::Path => flag::ORDER_PATH,
            OrderRule::None => flag::ORDER_NONE,
        };
        let instances = config.cpu.map_or(0, |_| flag::PER_CPU);
        Leaf {
            row: numbers.row.0,
            local: numbers.local as u32,
            ring_base: rings.start as u16,
            ring_count: rings.len() as u16,
            flags: on_fault | order | instances,
            slot: slot.expect("a path has a slot at each of its interfaces") as u32,
            path: numbers.row.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashway_abi::trusted::{MAX_PATHS, MAX_RINGS};
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
            order = "none"
            on_fault = "drop"
        "#;
        let file = directory.join("node.toml");
        let config = ashway_config::parse(FsPath::new(&file), text.as_bytes()).unwrap();
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
        let mut ids = Ids::default();
        let plan = draw(&config, &facts, &mut ids);
        let first = HandlerId(0);
        let instance = &plan.instances[&first].queue;
        assert_eq!(instance.rings_of, [(0, 0..2), (1, 2..5)]);
        assert_eq!((instance.rings, instance.slot_bytes), (5, 4096));
        assert_eq!((instance.iface_of(1), instance.iface_of(4)), (0, 1));
        assert_eq!(plan.paths[0].slots, [(0, 0), (1, 0)]);
        assert_eq!(plan.paths[1].slots, [(1, 1)]);
        assert_eq!(
            (plan.module_row.0, plan.paths[0].row.0, plan.paths[1].row.0),
            (2, 3, 4)
        );
        assert_eq!(plan.rows, 5 + SPARE_ROWS);
        let flags = [0, 1].map(|at| {
            let path = plan.paths[at].id();
            plan.leaf(1, path, &config.paths[at]).flags
        });
        assert_eq!(flags, [0, flag::ON_FAULT_DROP | flag::ORDER_NONE]);

        // Paths come and go; nobody else's numbers change, and no id returns.
        let mut plan = plan;
        let mut rows = plan.spare_rows::<()>();
        let mut row = || {
            let row = rows.next(1).unwrap();
            assert!(rows.take(row));
            row
        };
        let anywhere = |_| true;
        let mut place =
            |plan: &Plan, handler, ifaces: &[usize], is_idle: &dyn Fn(usize) -> bool| {
                let is_idle = |_, local| is_idle(local);
                let placed = plan.place(&mut ids, row(), &[handler], ifaces, anywhere, is_idle);
                let [placed] = <[_; 1]>::try_from(placed.unwrap()).unwrap();
                placed
            };
        let third = place(&plan, first, &[0, 1], &anywhere);
        assert_eq!((third.runs.len(), third.row.0, third.local), (2, 5, 2));
        assert_eq!(third.slots, [(0, 1), (1, 2)]);
        plan.add_path(third.clone());
        let second = plan.paths[1].clone();
        let ids = [&plan.paths[0], &second, &third].map(PathPlan::id);
        assert_eq!(plan.path_of(third.runs[1]), Some(ids[2]));
        assert_eq!(plan.remove_path(ids[0]).id(), ids[0]);
        assert_eq!(plan.path_of(ids[0]), None);
        assert!(plan.paths.values().eq([&second, &third]));
        assert_eq!(plan.ifaces[0].paths, [ids[2]]);
        assert_eq!(plan.ifaces[1].paths, [ids[1], ids[2]]);
        let not_first = |local| local != 0;
        let fourth = place(&plan, first, &[1], &not_first);
        assert!(!ids.contains(&fourth.id()));
        assert_eq!((fourth.row.0, fourth.local), (6, 3));
        assert_eq!(fourth.slots, [(1, 0)]);

        // Instances too: an id does not return.
        let other = plan.add_instance(InstancePlan::unbound(&facts));
        let third = plan.add_instance(InstancePlan::unbound(&facts));
        let path = place(&plan, third, &[0], &anywhere);
        let id = path.id();
        plan.add_path(path);
        plan.remove_instance(other);
        assert_eq!(plan.paths[&id].handler, third);
        assert_eq!(plan.instances[&third].paths, [id]);
        let next = plan.add_instance(InstancePlan::unbound(&facts));
        assert!(![first, other, third].contains(&next));
    }

    #[test]
    fn what_is_full_is_named() {
        const ROW: CounterRow = CounterRow(7);
        let facts = [IfaceFacts {
            queues: MAX_RINGS,
            mtu: 1500,
        }; 2];
        let mut plan = Plan {
            ifaces: vec![
                IfacePlan {
                    unmatched_row: CounterRow(0),
                    paths: Vec::new(),
                };
                2
            ],
            instances: BTreeMap::new(),
            paths: IndexMap::new(),
            module_row: CounterRow(2),
            rows: 0,
            next_handler: HandlerId(0),
        };
        let instances = 0..2 + MAX_SLOTS / MAX_PATHS;
        let handlers: Vec<HandlerId> = instances
            .map(|_| plan.add_instance(InstancePlan::unbound(&facts)))
            .collect();
        let first = handlers[0];
        let numbers = plan.instances.get_mut(&first).unwrap();
        numbers.queue.rings_of.truncate(1);
        let mut ids = Ids::default();
        let mut place = |plan: &Plan, handler, iface| {
            let placed = plan.place(&mut ids, ROW, &[handler], &[iface], |_| true, |_, _| true);
            placed.map(|placed| placed[0].clone())
        };
        assert_eq!(place(&plan, first, 1), Err(NoRoom::Ring(1, first)));
        for _ in 0..MAX_PATHS {
            let numbers = place(&plan, first, 0).unwrap();
            plan.add_path(numbers);
        }
        assert_eq!(place(&plan, first, 0), Err(NoRoom::Handler(MAX_PATHS)));
        let busy = plan.place(
            &mut Ids::default(),
            ROW,
            &handlers[1..2],
            &[0],
            |_| true,
            |_, _| false,
        );
        assert_eq!(busy, Err(NoRoom::Busy));
        for number in MAX_PATHS..MAX_SLOTS {
            let numbers = place(&plan, handlers[number / MAX_PATHS], 0).unwrap();
            plan.add_path(numbers);
        }
        let last = handlers[MAX_SLOTS / MAX_PATHS];
        assert_eq!(place(&plan, last, 0), Err(NoRoom::Iface(0)));
        let numbers = place(&plan, last, 1).unwrap();
        plan.add_path(numbers);
        plan.remove_path(plan.paths[0].id());
        place(&plan, last, 0).unwrap();
    }

    /// One for each CPU: they lie behind each other, and demux leads to the first alone.
    #[test]
    fn the_paths_to_a_handlers_instances_follow_each_other() {
        let facts = [IfaceFacts {
            queues: 1,
            mtu: 1500,
        }; 2];
        let ifaces = [0, 1].map(|number| IfacePlan {
            unmatched_row: CounterRow(number),
            paths: Vec::new(),
        });
        let mut plan = Plan {
            ifaces: ifaces.into(),
            instances: BTreeMap::new(),
            paths: IndexMap::new(),
            module_row: CounterRow(2),
            rows: 0,
            next_handler: HandlerId(0),
        };
        let each = [(); 3].map(|()| plan.add_instance(InstancePlan::unbound(&facts)));
        let one = plan.add_instance(InstancePlan::unbound(&facts));
        let mut ids = Ids::default();
        let mut place = |plan: &mut Plan, row, instances: &[HandlerId], ifaces: &[usize]| {
            // The first number of the second instance is not free yet.
            let is_idle = |handler, local| handler != each[1] || local > 0;
            let row = CounterRow(row);
            let placed = plan.place(&mut ids, row, instances, ifaces, |_| true, is_idle);
            let placed = placed.unwrap();
            for path in &placed {
                plan.add_path(path.clone());
            }
            placed
        };
        let before = place(&mut plan, 9, &[one], &[1]);
        let between = place(&mut plan, 20, &[one], &[1]);
        plan.remove_path(before[0].id());
        let placed = place(&mut plan, 10, &each, &[0, 1]);
        for (nth, path) in placed.iter().enumerate() {
            assert_eq!((path.handler, path.nth), (each[nth], nth));
            assert_eq!((path.row, path.local), (CounterRow(10 + nth as u32), 1));
            // There is room for one before that which lies between.
            assert_eq!(path.slots, [(0, nth), (1, 2 + nth)]);
            let led = plan.target(path.id(), 1).map(|target| target.row);
            assert_eq!(led, (nth == 0).then_some(CounterRow(10)));
        }
        assert_eq!(between[0].slots, [(1, 1)]);
        let last = place(&mut plan, 30, &[one], &[1]);
        assert_eq!(last[0].slots, [(1, 0)]);
    }
}
