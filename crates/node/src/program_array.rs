//! The program array of each interface: which program a message goes on to behind demux.
//!
//! A path that ends in a handler has a place of its own on each of its interfaces; all
//! others share two.

use ashway_abi::leaf::MAX_SLOTS;
use ashway_kernel::{Map, MapSpec};
use ashway_path::places::PathId;

use super::node_path::Promotion;
use super::{Node, RunError};
use ashway_config::Tier;
use ashway_worker::instance::NotPromoted;

/// The place in every program array of the program that takes whole frames.
pub(super) const FRAMES_SLOT: u32 = MAX_SLOTS as u32;
/// The place of the program of relays.
pub(super) const RELAY_SLOT: u32 = FRAMES_SLOT + 1;

/// A program array of an interface, with no program in it.
pub(super) fn create() -> Result<Map, RunError> {
    Map::create(&MapSpec::prog_array("ashway_slots", RELAY_SLOT + 1)).map_err(|source| {
        RunError::System {
            doing: "create a program array",
            source,
        }
    })
}

impl Node {
    /// Puts the program of this tier into a path's slots; false if there is none.
    pub(super) fn put(&self, path: PathId, tier: Tier) -> Result<bool, NotPromoted> {
        let plan = &self.plan.paths[&path];
        let own = match (&self.paths.bound(path).promotion, tier) {
            (Promotion::Done(promoted), Tier::Kernel) => &promoted.program,
            _ => match &self.handlers[&plan.handler].user_program {
                Some(program) => program,
                None => return Ok(false),
            },
        };
        let program = self.observed_program(path, tier).unwrap_or(own);
        for &(iface, slot) in &plan.slots {
            if let Some(xdp) = &self.ifaces[iface].xdp {
                xdp.slots
                    .set_slot(slot as u32, program.fd())
                    .map_err(|error| {
                        NotPromoted::new(
                            format!("the program array did not take the program: {error}"),
                            "this is a bug of Ashway; please report it",
                        )
                    })?;
            }
        }
        Ok(true)
    }

    /// Empties a path's slots.
    pub(super) fn clear_slots(&self, slots: &[(usize, usize)]) {
        for &(iface, slot) in slots {
            if let Some(xdp) = &self.ifaces[iface].xdp {
                // Nobody goes there: what stays is only not freed.
                let _ = xdp.slots.clear_slot(slot as u32);
            }
        }
    }
}
