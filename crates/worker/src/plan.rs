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

use crate::bug::{self, Bug};
use crate::iface_map::IfaceMap;
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
    /// Interfaces, by numbers that no other of the node ever has.
    pub ifaces: IfaceMap<IfacePlan>,
    /// The instances of handlers, whether a path uses them or not.
    pub instances: BTreeMap<HandlerId, InstancePlan>,
    /// Paths, in the order in which they came.
    pub paths: IndexMap<PathId, PathPlan>,
    /// The row of all paths that run in the user tier as a whole.
    pub module_row: CounterRow,
    /// Rows of counters, those of relays in the kernel tier behind them.
    pub(crate) rows: usize,
    next_handler: HandlerId,
    next_iface: usize,
}

/// Why there is no room for a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The interface has all the paths it can have.
    Iface(usize),
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
    pub fn unbound(facts: &IfaceMap<IfaceFacts>) -> Self {
        Self {
            paths: Vec::new(),
            queue: QueuePlan::unbound(facts),
        }
    }
}

/// A path's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlan {
    /// Its id, which no other path of the node ever has: its row is another's when it has
    /// gone.
    pub id: PathId,
    /// What the worker has of it: a path for each of its interfaces. One of them may have its
    /// id.
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
    /// All ids that are given back when it has gone.
    pub fn ids(&self) -> impl Iterator<Item = PathId> {
        let runs = self.runs.iter().copied();
        runs.filter(|run| *run != self.id).chain([self.id])
    }
}

/// Draws the plan. Interfaces are numbered in the order of `config.ifaces`, by which `facts`
/// are.
///
/// # Panics
///
/// If a path names what the configuration does not have, which a checked one does not; and if
/// there are more rows than a [ticket](crate::ticket) has bits for, some 260,000 paths of handlers.
#[must_use]
pub fn draw(config: &Config, facts: &IfaceMap<IfaceFacts>, ids: &mut Ids) -> Plan {
    let iface_number = |name: &str| {
        config
            .ifaces
            .iter()
            .position(|iface| iface.name == name)
            .expect("a checked configuration names interfaces that it has")
    };
    let mut ifaces: IfaceMap<IfacePlan> = (0..config.ifaces.len())
        .map(|i| {
            let plan = IfacePlan {
                unmatched_row: CounterRow(i as u32),
                paths: Vec::new(),
            };
            (i, plan)
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
        let (id, runs) = take_ids(ids, path.ifaces.len());
        let plan = instances.get_mut(&handler).expect("all have one");
        plan.paths.push(id);
        let local = plan.paths.len() - 1;
        let mut slots = Vec::new();
        for name in &path.ifaces {
            let iface = iface_number(name);
            ifaces[iface].paths.push(id);
            slots.push((iface, ifaces[iface].paths.len() - 1));
        }
        let plan = PathPlan {
            id,
            runs,
            row: CounterRow(row),
            handler,
            local,
            slots,
            nth: path.cpu.map_or(0, |cpu| cpu as usize),
        };
        paths.insert(id, plan);
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
        next_iface: config.ifaces.len(),
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

    /// A number for an interface, which no other had or will have.
    pub fn take_iface_number(&mut self) -> usize {
        let mut number = self.next_iface;
        if bug::is(Bug::IfaceNumberReturns) {
            let free = (0..number).find(|number| self.ifaces.get(*number).is_none());
            number = free.unwrap_or(number);
        }
        self.next_iface = self.next_iface.max(number + 1);
        number
    }

    /// Adds an interface with this number, and no path yet, which gets this row.
    pub fn add_iface(&mut self, number: usize, unmatched_row: CounterRow) {
        let plan = IfacePlan {
            unmatched_row,
            paths: Vec::new(),
        };
        let before = self.ifaces.insert(number, plan);
        debug_assert_eq!(before, None, "the number is another's");
    }

    /// Removes an interface without paths; the row that it had.
    pub fn remove_iface(&mut self, number: usize) -> Option<CounterRow> {
        let removed = self.ifaces.remove(number)?;
        debug_assert!(removed.paths.is_empty());
        Some(removed.unmatched_row)
    }

    /// Has a path be at one more interface, where it is not: its id there, and its slot.
    ///
    /// # Errors
    ///
    /// That there is no slot.
    ///
    /// # Panics
    ///
    /// If there is no such path.
    pub fn extend_path(
        &mut self,
        ids: &mut Ids,
        id: PathId,
        iface: usize,
    ) -> Result<(PathId, usize), NoRoom> {
        let slot = self.free_slots(iface, 1).ok_or(NoRoom::Iface(iface))?;
        let run = ids.take();
        self.ifaces[iface].paths.push(id);
        let path = self.paths.get_mut(&id).expect("it is there");
        path.slots.push((iface, slot));
        path.runs.push(run);
        Ok((run, slot))
    }

    /// Has a path be at one interface less; its id there, and its slot. The path's own id
    /// stays the path's.
    pub fn shrink_path(&mut self, id: PathId, iface: usize) -> Option<(PathId, usize)> {
        let path = self.paths.get_mut(&id)?;
        let at = path.slots.iter().position(|(known, _)| *known == iface)?;
        let (_, slot) = path.slots.remove(at);
        let run = path.runs.remove(at);
        self.ifaces[iface].paths.retain(|known| *known != id);
        Some((run, slot))
    }

    /// The first of so many slots of an interface, one behind the other, that no path has.
    fn free_slots(&self, iface: usize, count: usize) -> Option<usize> {
        let paths = self.ifaces[iface].paths.iter();
        let taken: BTreeSet<usize> = paths.filter_map(|path| self.slot(*path, iface)).collect();
        let mut slots = 0..=MAX_SLOTS - count;
        slots.find(|slot| taken.range(*slot..*slot + count).next().is_none())
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
    /// number within their instances. `is_idle` says of a number within an instance whether its
    /// former path has nothing underway.
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
            let slot = self.free_slots(iface, instances.len());
            slots.push((iface, slot.ok_or(NoRoom::Iface(iface))?));
        }
        let numbers = instances.iter().enumerate().map(|(nth, handler)| {
            let (id, runs) = take_ids(ids, slots.len());
            PathPlan {
                id,
                runs,
                row: CounterRow(row.0 + nth as u32),
                handler: *handler,
                local,
                slots: slots
                    .iter()
                    .map(|(iface, slot)| (*iface, slot + nth))
                    .collect(),
                nth,
            }
        });
        Ok(numbers.collect())
    }

    /// Adds a path, with numbers from [`place`](Self::place).
    pub fn add_path(&mut self, numbers: PathPlan) {
        let id = numbers.id;
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
            tag: iface as u32,
        }
    }
}

/// An id for a path, and one for it at each of so many interfaces: the first has the path's.
fn take_ids(ids: &mut Ids, ifaces: usize) -> (PathId, Vec<PathId>) {
    let id = ids.take();
    let others = (1..ifaces).map(|_| ids.take());
    let runs = [id].into_iter().chain(others).take(ifaces);
    (id, runs.collect())
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
        let facts = [(2, 1500), (3, 1500)].map(|(queues, mtu)| IfaceFacts {
            queues,
            mtu,
            shares: false,
        });
        let facts = facts.into_iter().enumerate().collect();
        let mut ids = Ids::default();
        let plan = draw(&config, &facts, &mut ids);
        let first = HandlerId(0);
        let instance = &plan.instances[&first].queue;
        assert_eq!([0, 1].map(|iface| instance.rings_at(iface)), [0..2, 2..5]);
        assert_eq!((instance.rings, instance.slot_bytes), (5, 2048));
        assert_eq!(plan.paths[0].slots, [(0, 0), (1, 0)]);
        assert_eq!(plan.paths[1].slots, [(1, 1)]);
        assert_eq!(
            (plan.module_row.0, plan.paths[0].row.0, plan.paths[1].row.0),
            (2, 3, 4)
        );
        assert_eq!(plan.rows, 5 + SPARE_ROWS);
        let flags = [0, 1].map(|at| {
            let path = plan.paths[at].id;
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
        let anywhere = |_: usize| true;
        let mut place =
            |plan: &Plan, handler, ifaces: &[usize], is_idle: &dyn Fn(usize) -> bool| {
                let is_idle = |_, local| is_idle(local);
                let placed = plan.place(&mut ids, row(), &[handler], ifaces, is_idle);
                let [placed] = <[_; 1]>::try_from(placed.unwrap()).unwrap();
                placed
            };
        let third = place(&plan, first, &[0, 1], &anywhere);
        assert_eq!((third.runs.len(), third.row.0, third.local), (2, 5, 2));
        assert_eq!(third.slots, [(0, 1), (1, 2)]);
        plan.add_path(third.clone());
        let second = plan.paths[1].clone();
        let ids = [&plan.paths[0], &second, &third].map(|path| path.id);
        assert_eq!(plan.path_of(third.runs[1]), Some(ids[2]));
        assert_eq!(plan.remove_path(ids[0]).id, ids[0]);
        assert_eq!(plan.path_of(ids[0]), None);
        assert!(plan.paths.values().eq([&second, &third]));
        assert_eq!(plan.ifaces[0].paths, [ids[2]]);
        assert_eq!(plan.ifaces[1].paths, [ids[1], ids[2]]);
        let not_first = |local| local != 0;
        let fourth = place(&plan, first, &[1], &not_first);
        assert!(!ids.contains(&fourth.id));
        assert_eq!((fourth.row.0, fourth.local), (6, 3));
        assert_eq!(fourth.slots, [(1, 0)]);

        // Instances too: an id does not return.
        let other = plan.add_instance(InstancePlan::unbound(&facts));
        let third = plan.add_instance(InstancePlan::unbound(&facts));
        let path = place(&plan, third, &[0], &anywhere);
        let id = path.id;
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
        let one = IfaceFacts {
            queues: MAX_RINGS,
            mtu: 1500,
            shares: false,
        };
        let facts = [(0, one), (1, one)].into_iter().collect();
        let mut plan = Plan {
            ifaces: IfaceMap::default(),
            next_iface: 0,
            instances: BTreeMap::new(),
            paths: IndexMap::new(),
            module_row: CounterRow(2),
            rows: 0,
            next_handler: HandlerId(0),
        };
        for iface in [0, 1] {
            assert_eq!(plan.take_iface_number(), iface);
            plan.add_iface(iface, CounterRow(0));
        }
        let instances = 0..2 + MAX_SLOTS / MAX_PATHS;
        let handlers: Vec<HandlerId> = instances
            .map(|_| plan.add_instance(InstancePlan::unbound(&facts)))
            .collect();
        let first = handlers[0];
        let mut ids = Ids::default();
        let mut place = |plan: &Plan, handler, iface| {
            let placed = plan.place(&mut ids, ROW, &[handler], &[iface], |_, _| true);
            placed.map(|placed| placed[0].clone())
        };
        for _ in 0..MAX_PATHS {
            let numbers = place(&plan, first, 0).unwrap();
            plan.add_path(numbers);
        }
        assert_eq!(place(&plan, first, 0), Err(NoRoom::Handler(MAX_PATHS)));
        let busy = plan.place(&mut Ids::default(), ROW, &handlers[1..2], &[0], |_, _| {
            false
        });
        assert_eq!(busy, Err(NoRoom::Busy));
        for number in MAX_PATHS..MAX_SLOTS {
            let numbers = place(&plan, handlers[number / MAX_PATHS], 0).unwrap();
            plan.add_path(numbers);
        }
        let last = handlers[MAX_SLOTS / MAX_PATHS];
        assert_eq!(place(&plan, last, 0), Err(NoRoom::Iface(0)));
        let numbers = place(&plan, last, 1).unwrap();
        plan.add_path(numbers);
        plan.remove_path(plan.paths[0].id);
        place(&plan, last, 0).unwrap();
    }

    /// One for each CPU: they lie behind each other, and demux leads to the first alone.
    #[test]
    fn the_paths_to_a_handlers_instances_follow_each_other() {
        let one = IfaceFacts {
            queues: 1,
            mtu: 1500,
            shares: false,
        };
        let facts = [(0, one), (1, one)].into_iter().collect();
        let mut plan = Plan {
            ifaces: IfaceMap::default(),
            next_iface: 2,
            instances: BTreeMap::new(),
            paths: IndexMap::new(),
            module_row: CounterRow(2),
            rows: 0,
            next_handler: HandlerId(0),
        };
        for number in [0, 1] {
            plan.add_iface(number, CounterRow(number as u32));
        }
        let each = [(); 3].map(|()| plan.add_instance(InstancePlan::unbound(&facts)));
        let one = plan.add_instance(InstancePlan::unbound(&facts));
        let mut ids = Ids::default();
        let mut place = |plan: &mut Plan, row, instances: &[HandlerId], ifaces: &[usize]| {
            // The first number of the second instance is not free yet.
            let is_idle = |handler, local| handler != each[1] || local > 0;
            let row = CounterRow(row);
            let placed = plan.place(&mut ids, row, instances, ifaces, is_idle);
            let placed = placed.unwrap();
            for path in &placed {
                plan.add_path(path.clone());
            }
            placed
        };
        let before = place(&mut plan, 9, &[one], &[1]);
        let between = place(&mut plan, 20, &[one], &[1]);
        plan.remove_path(before[0].id);
        let placed = place(&mut plan, 10, &each, &[0, 1]);
        for (nth, path) in placed.iter().enumerate() {
            assert_eq!((path.handler, path.nth), (each[nth], nth));
            assert_eq!((path.row, path.local), (CounterRow(10 + nth as u32), 1));
            // There is room for one before that which lies between.
            assert_eq!(path.slots, [(0, nth), (1, 2 + nth)]);
            let led = plan.target(path.id, 1).map(|target| target.row);
            assert_eq!(led, (nth == 0).then_some(CounterRow(10)));
        }
        assert_eq!(between[0].slots, [(1, 1)]);
        let last = place(&mut plan, 30, &[one], &[1]);
        assert_eq!(last[0].slots, [(1, 0)]);
    }
}
