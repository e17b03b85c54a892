//! Which direction of a path is up, seen from a protocol's stage.
//!
//! A path that was created from the top enters a protocol by its upper service,
//! one created from a driver by its lower one; a path from driver to driver has
//! both kinds of stages. Up is where headers come off.

use ashway_path::stage::Direction;

/// The direction in which headers come off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way(Direction);

/// The way of a stage that creation entered by the service `entered` (`None`:
/// began at), where `up` is the module's upper service.
#[must_use]
pub(crate) const fn way(entered: Option<usize>, up: usize) -> Way {
    match entered {
        Some(service) if service == up => Way(Direction::Backward),
        _ => Way(Direction::Forward),
    }
}

impl Way {
    /// Whether messages of this direction go up.
    #[must_use]
    pub(crate) fn is_up(self, direction: Direction) -> bool {
        self.0 == direction
    }

    /// The direction in which headers are put on.
    #[must_use]
    pub(crate) fn down(self) -> Direction {
        self.0.opposite()
    }
}
