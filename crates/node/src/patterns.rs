//! Interfaces that match a pattern: taken when they appear, and let go of for good when they
//! have gone.
//!
//! rtnetlink tells that something has changed, and not what: the node lists what there is, and
//! compares. One that it cannot have is left, is shown by `status`, and is tried again once a
//! minute.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ashway_kernel::iface::{self, Listed};
use ashway_path::places::PathId;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::world::{self, Changed};
use super::{Node, State, say};
use crate::request::Refusal;
use ashway_config::IfaceConfig;
use ashway_worker::handle::HandlerHandle;

/// Most interfaces that are tried at one look: each takes some milliseconds, and who asks the
/// node for something waits for so many.
const MOST: usize = 8;

/// How often one is tried again that could not be taken.
const AGAIN: Duration = Duration::from_mins(1);

/// An interface that matches, and is not taken.
#[derive(Debug)]
pub(super) struct LeftOut {
    pub(super) name: String,
    pub(super) pattern: String,
    pub(super) because: String,
    tried: Instant,
}

/// What has come of a look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Followed {
    /// Interfaces came or went.
    pub(super) changed: bool,
    /// There are more to be taken.
    pub(super) more: bool,
}

impl Node {
    /// Lets go of matching interfaces that have gone, and takes those that have come; tries
    /// [`MOST`] of them.
    pub(super) fn follow_patterns(&mut self) -> Followed {
        let gone = self.ifaces.iter().filter(|(_, iface)| {
            iface.pattern.is_some() && matches!(iface.state, State::Gone | State::Anew)
        });
        let gone: Vec<usize> = gone.map(|(number, _)| number).collect();
        let mut followed = Followed {
            changed: !gone.is_empty(),
            more: false,
        };
        for number in gone {
            self.remove_iface(number);
        }
        let mut came = Vec::new();
        if self.config.patterns.is_empty() {
            self.left_out.clear();
        } else if let Ok(listed) = iface::list() {
            // If the kernel does not answer, the next look asks again.
            let known: BTreeMap<u32, &str> = listed
                .iter()
                .map(|link| (link.ifindex, &*link.name))
                .collect();
            self.left_out
                .retain(|ifindex, left| known.get(ifindex) == Some(&&*left.name));
            let mut tried = 0;
            for link in listed {
                let Some(asked) = self.candidate(&link) else {
                    continue;
                };
                if tried == MOST {
                    followed.more = true;
                    break;
                }
                tried += 1;
                came.extend(self.take_matching(&link, asked));
            }
        }
        followed.changed |= !came.is_empty();
        if followed.changed {
            self.lead_to(&came);
        }
        followed
    }

    /// As what an interface is to be taken that matches, that the node does not have, and that was
    /// not tried a moment ago.
    fn candidate(&mut self, link: &Listed) -> Option<IfaceConfig> {
        let Some(asked) = self.config.matching(&link.name) else {
            // Another file may have a section for it, or no pattern that matches.
            self.left_out.remove(&link.ifindex);
            return None;
        };
        let left = self.left_out.get(&link.ifindex);
        let is_recent = left.is_some_and(|left| left.tried.elapsed() < AGAIN);
        (link.is_ethernet && !is_recent).then_some(asked)
    }

    /// Takes it; its number.
    fn take_matching(&mut self, link: &Listed, asked: IfaceConfig) -> Option<usize> {
        let coming = self.look_at_coming(&asked);
        match coming.and_then(|coming| self.add_iface(coming)) {
            Ok(number) => {
                self.left_out.remove(&link.ifindex);
                let iface = &self.ifaces[number];
                let (name, rung, ifindex) = (&iface.name, iface.rung.name(), iface.ifindex);
                let pattern = asked.pattern.as_deref().unwrap_or_default();
                say(&format!(
                    "interface `{name}` is taken by `{pattern}`: {rung}, number {ifindex}"
                ));
                Some(number)
            }
            Err(refusal) => {
                self.leave_out(link, asked, &refusal);
                None
            }
        }
    }

    fn leave_out(&mut self, link: &Listed, asked: IfaceConfig, why: &Refusal) {
        let left = LeftOut {
            name: asked.name,
            pattern: asked.pattern.unwrap_or_default(),
            because: why.message.clone(),
            tried: Instant::now(),
        };
        let known = self.left_out.get(&link.ifindex);
        if known.is_none_or(|known| known.because != left.because) {
            say(&format!(
                "interface `{}` matches `{}` and is not taken: {}",
                left.name, left.pattern, left.because
            ));
        }
        self.left_out.insert(link.ifindex, left);
    }

    /// Has the graph follow the interfaces that there are, and leads paths to those that came.
    fn lead_to(&mut self, came: &[usize]) {
        let handlers: Vec<HandlerHandle> = self.handlers.values().cloned().collect();
        let (links, served) = (&self.links, &self.served);
        let none = Changed::default();
        let config = &self.config;
        match world::graph_behind(&self.graph, config, links, &handlers, served, &none) {
            Ok(graph) => self.graph = graph,
            // Nothing but interfaces is another: paths that stay do not notice.
            Err(error) => {
                say(&format!("paths cannot follow: {}", error.refusal().message));
                return;
            }
        }
        for &number in came {
            let name = self.ifaces[number].name.clone();
            let Some(iface) = self.config.iface(&name).cloned() else {
                continue;
            };
            let paths = self.paths.all_bound();
            let here = paths.filter(|(_, path)| path.config.is_at(&iface));
            let here: Vec<PathId> = here.map(|(id, _)| id).collect();
            for id in here {
                if let Err(refusal) = self.extend(id, number) {
                    let path = &self.paths.bound(id).config.name;
                    let because = refusal.message;
                    say(&format!("path `{path}` is not at `{name}`: {because}"));
                }
            }
        }
    }

    /// Takes all that match when the node starts, and says which patterns nothing matches.
    pub(super) fn take_all_matching(&mut self) {
        while self.follow_patterns().more {}
        for pattern in &self.config.patterns {
            let text = pattern.glob.text();
            let taken = |iface: &super::NodeIface| iface.pattern.as_deref() == Some(text);
            if !self.ifaces.values().any(taken) {
                say(&format!("no interface is taken by `{text}` yet"));
            }
        }
    }
}

/// Has the process have as many descriptors as it may: each interface takes some ten.
pub(super) fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    // If this is refused, interfaces beyond the limit are left, and the node says so.
    let _ = setrlimit(Resource::Nofile, all);
}
