//! One path, run by an [engine](crate::engine) of its own at the times that the caller
//! says: for whoever wants to see what becomes of a message, and nothing else.

use std::mem;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use ashway_abi::Count;

use crate::engine::{Engine, From, Full, Requeued, Shell};
use crate::path::{Exit, Path, Trail};
use crate::places::{Ids, PathId};
use crate::sched::fifo::Fifo;
use crate::stage::Direction;
use crate::time::Time;
use crate::watch::{Nobody, Watch};

/// A path and its engine. What each call gives back has come out of the path, in order.
pub struct Single<M, W = Nobody> {
    engine: Engine<M, (), Fifo>,
    id: PathId,
    around: Around<M, W>,
}

struct Around<M, W> {
    now: Time,
    watch: W,
    exits: Vec<Exit<M>>,
}

impl<M, W: Watch<M> + Clone> Shell<M, ()> for Around<M, W> {
    type Watch = W;

    fn now(&mut self) -> Time {
        self.now
    }

    fn cpu_time(&mut self) -> Duration {
        self.now.since(Time::default())
    }

    fn watch(&mut self, _: &Path<M>, (): &(), _: Option<&M>) -> W {
        self.watch.clone()
    }

    fn exit(&mut self, _: From<'_, ()>, exit: Exit<M>) -> Option<Requeued<M>> {
        self.exits.push(exit);
        None
    }

    fn done(&mut self, _: NonZeroU32) {}

    fn ran(&mut self, _: PathId, _: &mut Path<M>, (): &mut ()) {}

    fn stray(&mut self, _: M, _: Trail) {}

    fn failed(&mut self, _: PathId, path: &Path<M>) {
        let fault = path.account().fault.as_deref();
        panic!("{}", fault.map(ToString::to_string).unwrap_or_default());
    }
}

impl<M> Single<M> {
    /// This path, which must be established and have input queues.
    #[must_use]
    pub fn new(path: Path<M>) -> Self {
        Self::watched(path, Nobody)
    }
}

impl<M, W: Watch<M> + Clone> Single<M, W> {
    /// The same, with somebody who watches.
    #[must_use]
    pub fn watched(path: Path<M>, watch: W) -> Self {
        let (mut engine, id) = (Engine::default(), Ids::default().take());
        engine.insert(id, path, (), None);
        let around = Around {
            now: Time::default(),
            watch,
            exits: Vec::new(),
        };
        Self { engine, id, around }
    }

    /// Puts a message on an input queue.
    ///
    /// # Errors
    ///
    /// Those of [`Engine::offer`].
    pub fn offer(&mut self, direction: Direction, message: M) -> Result<(), (M, Full)> {
        self.enqueue(None, direction, message)
    }

    fn enqueue(
        &mut self,
        stage: Option<u8>,
        direction: Direction,
        message: M,
    ) -> Result<(), (M, Full)> {
        let trail = Trail {
            stage,
            ..Trail::default()
        };
        let now = self.around.now;
        self.engine.offer(self.id, direction, message, trail, now)
    }

    /// Runs the message that was offered first of those that wait.
    pub fn run(&mut self, now: Time) -> Vec<Exit<M>> {
        self.around.now = now;
        self.engine.turn(&mut self.around);
        self.out()
    }

    /// Offers a message, and runs it and whatever waited before it.
    pub fn pass(&mut self, direction: Direction, message: M, now: Time) -> Vec<Exit<M>> {
        self.enter(None, direction, message, now)
    }

    /// The same, of a message that enters at this stage: another tier has done the work of
    /// those before it.
    ///
    /// # Panics
    ///
    /// If there is no such stage.
    pub fn inject(
        &mut self,
        stage: usize,
        direction: Direction,
        message: M,
        now: Time,
    ) -> Vec<Exit<M>> {
        assert!(stage < self.len(), "no stage {stage}");
        self.enter(Some(stage as u8), direction, message, now)
    }

    fn enter(
        &mut self,
        stage: Option<u8>,
        direction: Direction,
        message: M,
        now: Time,
    ) -> Vec<Exit<M>> {
        self.around.now = now;
        let offered = self.enqueue(stage, direction, message);
        while self.engine.turn(&mut self.around) {}
        if let Err((message, Full::Dropped(fate))) = offered {
            let turned = false;
            self.around.exits.push(Exit::Ended {
                message,
                fate,
                turned,
            });
        }
        self.out()
    }

    /// Runs the timers that are due.
    pub fn wake(&mut self, now: Time) -> Vec<Exit<M>> {
        self.around.now = now;
        self.engine.wake(&mut self.around);
        self.out()
    }

    /// Takes the next message from the output queues.
    pub fn take_output(&mut self) -> Option<Exit<M>> {
        self.engine.take_output().map(|output| output.exit)
    }

    /// Empties all queues. What waits to come in ends with this fate.
    pub fn drain(&mut self, fate: Count) -> Vec<Exit<M>> {
        self.engine.drain(self.id, fate, &mut self.around);
        self.out()
    }

    /// The path, out of its engine.
    ///
    /// # Panics
    ///
    /// Never.
    #[must_use]
    pub fn into_path(mut self) -> Path<M> {
        let (path, ()) = self.engine.take(self.id).expect("nobody else takes it");
        path
    }

    fn out(&mut self) -> Vec<Exit<M>> {
        mem::take(&mut self.around.exits)
    }
}

impl<M, W> Deref for Single<M, W> {
    type Target = Path<M>;

    fn deref(&self) -> &Path<M> {
        self.engine.path(self.id).expect("nobody takes it")
    }
}

impl<M, W> DerefMut for Single<M, W> {
    fn deref_mut(&mut self) -> &mut Path<M> {
        let (path, ()) = self.engine.path_mut(self.id).expect("nobody takes it");
        path
    }
}
