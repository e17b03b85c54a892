//! What the worker says of a path: numbers and names as they were at one moment.
//!
//! The worker copies, and formats nothing: words and JSON are made of this by whoever
//! asked, so that no message waits for them.

use ashway_abi::share::Mode;
use ashway_modules::Message;
use ashway_path::account::Account;
use ashway_path::attrs::Attrs;
use ashway_path::path::Path;
use ashway_path::stage::{Direction, Stage};

/// A path at one moment.
#[derive(Clone, Debug)]
pub struct PathSnapshot {
    /// First to last.
    pub stages: Vec<StageSnapshot>,
    /// Its attributes.
    pub attrs: Attrs,
    /// Its queues.
    pub queues: Queues,
    /// Messages received that have no fate yet.
    pub waiting: u64,
    /// Of its grant, what the path takes.
    pub memory_bytes: usize,
    /// Its books.
    pub account: Account,
    /// How it stands with its share, if it has one.
    pub mode: Option<Mode>,
}

/// A stage of a path.
#[derive(Clone, Debug)]
pub struct StageSnapshot {
    /// The module's name in the graph.
    pub module: Box<str>,
    /// The kind of that module, if a module made the stage.
    pub kind: Option<&'static str>,
}

/// The queues of a path.
#[derive(Clone, Copy, Debug)]
pub struct Queues {
    /// Of what came in at the first stage.
    pub in_forward: QueueSnapshot,
    /// Of what came in at the last stage.
    pub in_backward: QueueSnapshot,
    /// Of what left at the last stage.
    pub out_forward: QueueSnapshot,
    /// Of what left at the first stage.
    pub out_backward: QueueSnapshot,
}

/// A queue of a path.
#[derive(Clone, Copy, Debug)]
pub struct QueueSnapshot {
    /// How many messages it holds.
    pub length: usize,
    /// How many it may hold.
    pub maximum: u32,
}

impl PathSnapshot {
    /// Adds what the same path holds and has done at another interface.
    pub fn add(&mut self, other: &Self) {
        let (mine, theirs) = (&mut self.queues, &other.queues);
        for (mine, theirs) in [
            (&mut mine.in_forward, theirs.in_forward),
            (&mut mine.in_backward, theirs.in_backward),
            (&mut mine.out_forward, theirs.out_forward),
            (&mut mine.out_backward, theirs.out_backward),
        ] {
            mine.length += theirs.length;
            mine.maximum += theirs.maximum;
        }
        self.waiting += other.waiting;
        self.memory_bytes += other.memory_bytes;
        let (mine, theirs) = (&mut self.account, &other.account);
        mine.originated += theirs.originated;
        mine.runs += theirs.runs;
        mine.time += theirs.time;
        mine.granted_bytes += theirs.granted_bytes;
        if mine.fault.is_none() {
            mine.fault.clone_from(&theirs.fault);
        }
    }

    /// Copies. Bounded by the path's grant of memory: allocates for each stage and each
    /// attribute, and for the last fault.
    pub(crate) fn of(path: &Path<Message>, mode: Option<Mode>) -> Self {
        let stage = |stage: &dyn Stage<Message>| StageSnapshot {
            module: stage.name().into(),
            kind: stage.kind().map(|kind| kind.name),
        };
        let (forward, backward) = (Direction::Forward, Direction::Backward);
        let input = |direction| {
            let queue = path.input(direction);
            QueueSnapshot {
                length: queue.len(),
                maximum: queue.maximum(),
            }
        };
        let output = |direction| {
            let queue = path.output(direction);
            QueueSnapshot {
                length: queue.len(),
                maximum: queue.maximum(),
            }
        };
        Self {
            stages: path.stages().map(stage).collect(),
            attrs: path.attrs().clone(),
            queues: Queues {
                in_forward: input(forward),
                in_backward: input(backward),
                out_forward: output(forward),
                out_backward: output(backward),
            },
            waiting: path.waiting(),
            memory_bytes: path.memory_bytes(),
            account: path.account().clone(),
            mode,
        }
    }
}
