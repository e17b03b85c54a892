//! The interfaces that modules are connected by.
//!
//! Everything exchanges messages (`net`); what lies below says how it does: by
//! frames of a link, packets of a network, datagrams of a transport. So a module
//! that only wants messages fits on anything, and UDP fits on IP alone.

use ashway_path::service::{Interface, Service};

/// Exchange of messages, nothing more (Scout's `net` interface).
pub static NET: Interface = Interface {
    name: "net",
    parent: None,
};

/// Frames of a link.
pub static LINK: Interface = Interface {
    name: "link",
    parent: Some(&NET),
};

/// Packets between hosts.
pub static NETWORK: Interface = Interface {
    name: "network",
    parent: Some(&NET),
};

/// Datagrams between ports.
pub static TRANSPORT: Interface = Interface {
    name: "transport",
    parent: Some(&NET),
};

/// Of a module that ends a path on anything that exchanges messages.
pub(crate) static LEAF: [Service; 1] = [DOWN];

/// Of one between two that exchange messages, whatever these are; [`crate::way::UP`] and
/// [`crate::way::DOWN`] are their places.
pub(crate) static BETWEEN: [Service; 2] = [
    Service {
        name: "up",
        provides: &NET,
        requires: &NET,
        after: false,
    },
    DOWN,
];

/// Of one that stands in for a link, so that IP can be on it.
pub(crate) static LINK_LIKE: [Service; 2] = [
    Service {
        name: "up",
        provides: &LINK,
        requires: &NET,
        after: false,
    },
    DOWN,
];

const DOWN: Service = Service {
    name: "down",
    provides: &NET,
    requires: &NET,
    after: true,
};
