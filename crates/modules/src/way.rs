//! Which direction of a path is up, seen from a protocol's stage.
//!
//! A path that was created from the top enters a protocol by its upper service,
//! one created from a driver by its lower one; a path from driver to driver has
//! both kinds of stages. Up is where headers come off.

use ashway_path::module::Next;
use ashway_path::stage::Direction;

/// The upper service of a module with two, and its lower one.
pub(crate) const UP: usize = 0;
pub(crate) const DOWN: usize = 1;

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

/// The same for a module that a path may begin at: it then goes down from there.
#[must_use]
pub(crate) const fn way_from_top(entered: Option<usize>) -> Way {
    match entered {
        None => way(Some(UP), UP),
        entered => way(entered, UP),
    }
}

/// Where a path goes on behind a module with two services.
#[must_use]
pub(crate) const fn through(entered: Option<usize>) -> Next {
    match entered {
        Some(DOWN) => Next::Through(UP),
        _ => Next::Through(DOWN),
    }
}

/// The way of a stage whose module has only a lower service.
#[must_use]
pub(crate) const fn way_of_leaf(entered: Option<usize>) -> Way {
    match entered {
        // Creation begins at the top: as if entered from above.
        None => way(Some(1), 1),
        entered => way(entered, 1),
    }
}

/// Where a path goes on behind such a module.
#[must_use]
pub(crate) const fn onward(entered: Option<usize>) -> Next {
    match entered {
        None => Next::Through(0),
        Some(_) => Next::End,
    }
}
