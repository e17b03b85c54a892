//! Moving a running node from one hook to another, because `attach` of its configuration says so.
//!
//! The programs of a node run at one hook ([0012](../../../docs/design/0012-hooks.md)), and a
//! program array takes programs of one type. So everything is made a second time for the new hook
//! ([`load`]), on the compile thread, before anything changes; then interfaces
//! [move](go) so that each frame meets one entry program. Memory, counters, rings and ids
//! stay: they are maps that programs of either hook share. Between native and generic XDP an
//! interface goes by way of TCX, since it has room for one XDP program only.
//! [Why so](../../../docs/design/0024-moving-between-hooks.md).

use ashway_check::bpf::Hook;
use ashway_config::{Act, Attach, Config, Difference, Mistake, What};
use ashway_kernel::Iface;
use ashway_memory::MemoryKind;

use super::take::needs_frags;
use super::{Node, NodeIface};
use crate::rung::{Choice, Rung, choose_beside};

mod go;
mod load;

pub(super) use load::{HookJob, HookSet, NotLoaded};

/// What is to move, and where.
pub(super) struct HookMove {
    /// Where programs run then.
    hook: Hook,
    /// Whether those take frames in several buffers.
    frags: bool,
    /// Whether what the node has by now is of no use then.
    anew: bool,
    /// The interfaces that move.
    shifts: Vec<Shift>,
    /// What is asked for of each interface with programs, also of those that stay where they are
    /// or are not there.
    asked: Vec<(usize, Attach)>,
    /// The line that asks for it.
    line: usize,
}

/// An interface that moves.
struct Shift {
    number: usize,
    found: Iface,
    asked: Attach,
    to: Choice,
}

impl Node {
    /// How the interfaces of this node move if it is to do what `next` says; nothing if none
    /// does.
    ///
    /// # Errors
    ///
    /// Why they cannot.
    pub(super) fn hook_move(
        &self,
        next: &Config,
        asked: &Difference,
    ) -> Result<Option<HookMove>, Mistake> {
        let is_move = |what: What, act: Act| what == What::Iface && act == Act::Move;
        let mut moves = asked.steps.iter().filter(|it| is_move(it.what, it.act));
        let Some(line) = moves.next().map(|step| step.line) else {
            return Ok(None);
        };
        let refused = |message: String, hint: &str| Err(Mistake::new(line, message, hint));
        let Some(maps) = &self.maps else {
            return refused(
                "this node was started without programs, and cannot have any later".to_owned(),
                "start the node anew with this file",
            );
        };
        let others = asked.steps.iter();
        let others = others.filter(|it| !is_move(it.what, it.act) && it.act != Act::Stay);
        if let Some(other) = others.clone().next() {
            let (what, name) = (other.what.word(), &other.name);
            let more = match others.count() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            return refused(
                format!(
                    "`attach` is another, and so is {what} `{name}`{more}: a node moves to another \
                     hook as it is"
                ),
                "apply the new `attach` alone, and then the rest",
            );
        }
        if self.observation.is_some() {
            return refused(
                "cannot move to another hook while `trace` or `capture` runs".to_owned(),
                "end `ashway trace` or `ashway capture` first",
            );
        }
        let with_programs = self.ifaces.iter().filter(|(_, iface)| iface.xdp.is_some());
        let asked: Vec<(usize, Attach)> = with_programs
            .map(|(number, iface)| {
                let section = next.iface(&iface.name);
                (number, section.map_or(iface.attach, |it| it.attach))
            })
            .collect();
        let mut found = Vec::new();
        for &(number, attach) in &asked {
            let iface = &self.ifaces[number];
            if iface.state.is_lost() {
                continue;
            }
            match Iface::by_name(&iface.name) {
                Ok(it) => found.push((number, attach, it)),
                Err(error) => {
                    let message = format!("cannot look at interface `{}`: {error}", iface.name);
                    return refused(message, "ask once more");
                }
            }
        }
        let (hook, choices) = self.choices(next, &found);
        let both = || found.iter().zip(&choices);
        let frags = hook == Hook::Xdp
            && self.arena
            && both().any(|((_, _, found), choice)| needs_frags(found, choice.rung));
        let anew = hook != maps.hook || frags != maps.frags;
        let is_shift = |number: usize, attach: Attach, rung: Rung| {
            let NodeIface {
                attach: was,
                rung: from,
                ..
            } = &self.ifaces[number];
            // One that has stepped down from what it asks for is not tried again.
            anew || attach != *was && rung != *from
        };
        let shifts = both().filter(|((number, attach, _), choice)| {
            choice.rung.has_programs() && is_shift(*number, *attach, choice.rung)
        });
        let shifts = shifts.map(|((number, asked, found), to)| Shift {
            number: *number,
            found: found.clone(),
            asked: *asked,
            to: to.clone(),
        });
        let shifts: Vec<Shift> = shifts.collect();
        // To TCX, or by way of it.
        if !shifts.is_empty() && maps.hook == Hook::Xdp {
            if let Some(because) = &self.means.no_tcx {
                let message = format!("an interface leaves XDP by way of TCX: {because}");
                return refused(message, "start the node anew with this file");
            }
            let mut instances = self.instances();
            let array = instances.find(|it| it.memory.mapped.kind() == MemoryKind::Array);
            if let Some(array) = array {
                return refused(
                    format!(
                        "handler `{}` works in an array: an interface leaves XDP by way of TCX, \
                         where programs work in arenas only",
                        array.name
                    ),
                    "give it `memory = \"arena\"`, apply that, and then the new `attach`",
                );
            }
        }
        Ok(Some(HookMove {
            hook,
            frags,
            anew,
            shifts,
            asked,
            line,
        }))
    }

    /// The hook of a node with this configuration, and how each of these is to be taken.
    fn choices(&self, next: &Config, found: &[(usize, Attach, Iface)]) -> (Hook, Vec<Choice>) {
        let means = self.means.clone().of_node(next);
        let is_matched = |text: &str| {
            let mut ifaces = next.ifaces.iter();
            ifaces.any(|iface| iface.pattern.as_deref() == Some(text))
        };
        let patterns = next.patterns.iter();
        let patterns = patterns.map(|it| (it.attach, it.glob.text()));
        let patterns: Vec<_> = patterns.filter(|(_, text)| !is_matched(text)).collect();
        let found: Vec<_> = found.iter().map(|(_, attach, it)| (*attach, it)).collect();
        choose_beside(&means, &found, &patterns)
    }

    /// Has a plan say of each interface from where it moves to where.
    pub(super) fn describe_move(&self, moving: &HookMove, difference: &mut Difference) {
        for shift in &moving.shifts {
            let iface = &self.ifaces[shift.number];
            let mut because = format!("{} to {}", iface.rung.name(), shift.to.rung.name());
            if let Some(why) = &shift.to.because {
                because = format!("{because} ({why})");
            }
            difference.moves(&iface.name, moving.line, because);
        }
        for (number, asked) in &moving.asked {
            let iface = &self.ifaces[*number];
            let shifts = moving.shifts.iter().any(|shift| shift.number == *number);
            if !shifts && *asked != iface.attach {
                let stays = format!("it stays at {}", iface.rung.name());
                difference.moves(&iface.name, moving.line, stays);
            }
        }
    }
}
