//! Promotions of relays that first have some messages compared: record and replay
//! (`ashway_worker::relay_shadow`).

use std::sync::{Arc, Mutex};
use std::time::Instant;

use ashway_api::answer::{self, Moved};
use ashway_path::places::PathId;

use super::Node;
use super::operation::{Operation, Report};
use crate::compile::Job;
use crate::control::Caller;
use crate::request::Refusal;
use ashway_config::Tier;
use ashway_worker::instance::NotPromoted;
use ashway_worker::relay_shadow::{Recording, Replay};
use ashway_worker::shadow::{Compared, PATIENCE};
use ashway_worker::worker::command::Resource;

/// A relay that is being promoted.
#[derive(Clone, Copy, Debug)]
pub(super) struct RelayPromotion {
    path: PathId,
    /// How often it had been demoted.
    demotions: u32,
}

/// One that waits for messages.
#[derive(Debug)]
pub(super) struct RelayShadow {
    promotion: RelayPromotion,
    /// The worker records as long as this is here.
    recording: Arc<Mutex<Recording>>,
    /// When it waits no longer.
    end: Instant,
}

impl RelayPromotion {
    pub(super) const fn path(self) -> PathId {
        self.path
    }
}

impl RelayShadow {
    pub(super) const fn path(&self) -> PathId {
        self.promotion.path
    }
}

/// Recorded messages of a relay that our interpreter is to run.
pub(super) struct RelayCompareJob {
    replay: Box<Replay>,
    recording: Recording,
}

impl Job for RelayCompareJob {
    type Outcome = Result<Compared, NotPromoted>;

    fn run(mut self) -> Self::Outcome {
        self.replay.compare(&self.recording)
    }
}

impl Node {
    /// Moves a relay to the kernel tier. If `messages` is not 0, and it has not been done
    /// before, so many of the path, or as many as come in time, must first have the same end
    /// there.
    pub(super) fn promote_relay(&mut self, path: PathId, messages: usize, caller: Caller) {
        let frames = self.paths.frames(path);
        let stays = frames.is_none_or(|frames| frames.place.is_none());
        let there = frames.is_some_and(|frames| frames.tier() == Tier::Kernel);
        let compared = self.relay_compared_before(path).unwrap_or_default();
        if stays || there || messages == 0 || compared.equal > 0 {
            return caller.answer(self.move_relay(path, Tier::Kernel));
        }
        let name = self.name_and_tier(path).0.to_string();
        let operation = self
            .operations
            .next("promote", name, Report::Caller(caller));
        match self.record_relay(path, messages) {
            Ok(shadow) => self.operations.wait(operation, shadow),
            Err(refusal) => operation.end(Err::<Moved, _>(refusal)),
        }
    }

    /// Has the worker record what comes of messages of the path.
    fn record_relay(&mut self, path: PathId, messages: usize) -> Result<RelayShadow, Refusal> {
        if let Some(other) = self.operations.promoted_relay() {
            let because = if other == path {
                "it is being promoted already".to_owned()
            } else {
                "another relay is being promoted".to_owned()
            };
            let hint = "ask once more when that has ended, within a second";
            return Err(NotPromoted::new(because, hint).into());
        }
        let recording = Recording::shared(path, messages);
        self.call_worker(Resource::Recording(Arc::clone(&recording)))?;
        Ok(RelayShadow {
            promotion: RelayPromotion {
                path,
                demotions: self.demotions_of(path),
            },
            recording,
            end: Instant::now() + PATIENCE,
        })
    }

    /// Compares what has been recorded of relays, where that is enough or has to do.
    pub(super) fn look_at_relays(&mut self, now: Instant) {
        let is_due = |(_, shadow): &(u64, &RelayShadow)| {
            now >= shadow.end
                || self.still_relay(shadow.promotion).is_err()
                || Recording::of(&shadow.recording).is_full()
        };
        let due = self.operations.relay_shadows().filter(is_due);
        let due: Vec<u64> = due.map(|(number, _)| number).collect();
        for number in due {
            if let Some((operation, shadow)) = self.operations.take_relay_shadow(number) {
                self.compare_relay(operation, shadow);
            }
        }
    }

    fn compare_relay(&mut self, operation: Operation, due: RelayShadow) {
        let RelayShadow {
            promotion,
            recording,
            ..
        } = due;
        let number = self.relays.as_ref();
        let number = number.and_then(|relays| relays.number(promotion.path));
        let known = self
            .frame_queue
            .as_ref()
            .zip(self.maps.as_ref())
            .zip(number);
        match (self.still_relay(promotion), known) {
            (Ok(()), Some(((frame_queue, maps), number))) => {
                let out = self.ways_out();
                let job = RelayCompareJob {
                    replay: Box::new(Replay::new(frame_queue.queue.spec(maps), out, number)),
                    recording: Recording::take(&recording),
                };
                self.submit(operation, promotion, job);
            }
            (Err(why), _) => operation.end(Err::<Moved, _>(Refusal::from(why))),
            (Ok(()), None) => operation.end(self.move_relay(promotion.path, Tier::Kernel)),
        }
    }

    /// Goes on when they are compared.
    ///
    /// # Errors
    ///
    /// Why it stays in the user tier.
    pub(super) fn relay_compared(
        &mut self,
        promotion: RelayPromotion,
        compared: Result<Compared, NotPromoted>,
    ) -> Result<Moved, Refusal> {
        self.still_relay(promotion)?;
        let compared = compared?;
        if let Some(relays) = &mut self.relays {
            relays.compared.insert(promotion.path, compared);
        }
        let moved = self.move_relay(promotion.path, Tier::Kernel)?;
        Ok(Moved {
            shadow: Some(self.relay_shadow(promotion.path, true)),
            ..moved
        })
    }

    /// Whether the path is as it was.
    ///
    /// # Errors
    ///
    /// It was removed or demoted meanwhile: the last word holds.
    fn still_relay(&self, promotion: RelayPromotion) -> Result<(), NotPromoted> {
        let path = self.paths.frames(promotion.path);
        let (because, hint) = match path {
            Some(_) if self.demotions_of(promotion.path) == promotion.demotions => return Ok(()),
            Some(_) => ("the path was demoted meanwhile", "promote it once more"),
            None => (
                "the path was removed meanwhile",
                "`ashway status` shows the paths that are there",
            ),
        };
        Err(NotPromoted::new(because, hint))
    }

    fn demotions_of(&self, path: PathId) -> u32 {
        let relays = self.relays.as_ref();
        let known = relays.and_then(|relays| relays.demotions.get(&path));
        known.copied().unwrap_or_default()
    }

    fn relay_compared_before(&self, path: PathId) -> Option<Compared> {
        self.relays.as_ref()?.compared.get(&path).copied()
    }

    /// What was compared of a relay; `now` if by this request.
    pub(super) fn relay_shadow(&self, path: PathId, now: bool) -> answer::Shadow {
        let compared = self.relay_compared_before(path);
        answer::Shadow {
            compared: compared.map(|compared| answer::Compared {
                equal: compared.equal as u64,
                unclear: compared.unclear as u64,
                now,
            }),
        }
    }
}
