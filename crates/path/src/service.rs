//! Typed connection points of modules.
//!
//! A service provides one interface and requires another. Two services may be
//! connected if each provides what the other requires, or something more
//! specific: interfaces form a tree by single inheritance (Scout §3.1, "more
//! specific is okay").

use std::fmt;

/// The type of one half of a connection. Compared by identity: declare each
/// once, as a `static`.
#[derive(Debug)]
pub struct Interface {
    /// Its name, as errors and drawings show it.
    pub name: &'static str,
    /// What it is a special case of.
    pub parent: Option<&'static Self>,
}

impl Interface {
    /// Whether this interface can stand where `wanted` is asked for. Bounded by
    /// the depth of the inheritance.
    #[must_use]
    pub fn is(&'static self, wanted: &'static Self) -> bool {
        let mut at = Some(self);
        while let Some(interface) = at {
            if std::ptr::eq(interface, wanted) {
                return true;
            }
            at = interface.parent;
        }
        false
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A named connection point of a kind of module.
#[derive(Debug)]
pub struct Service {
    /// Its name within the module: `up`, `down`, `resolver`.
    pub name: &'static str,
    /// What the module offers here.
    pub provides: &'static Interface,
    /// What it needs from the other side.
    pub requires: &'static Interface,
    /// Whether the modules connected here must be initialised first (Scout's
    /// `<` marker).
    pub after: bool,
}

impl Service {
    /// Whether the two may be connected.
    #[must_use]
    pub fn fits(&self, other: &Self) -> bool {
        self.provides.is(other.requires) && other.provides.is(self.requires)
    }
}

/// `<provides, requires>`, as Scout writes it.
impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:<{}, {}>", self.name, self.provides, self.requires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NET: Interface = Interface {
        name: "net",
        parent: None,
    };
    static IP: Interface = Interface {
        name: "ip",
        parent: Some(&NET),
    };
    static NAMES: Interface = Interface {
        name: "names",
        parent: None,
    };

    fn service(provides: &'static Interface, requires: &'static Interface) -> Service {
        Service {
            name: "up",
            provides,
            requires,
            after: false,
        }
    }

    #[test]
    fn more_specific_is_okay_and_less_is_not() {
        assert!(IP.is(&NET) && IP.is(&IP));
        assert!(!NET.is(&IP) && !IP.is(&NAMES));
        assert!(service(&IP, &NET).fits(&service(&NET, &NET)));
        assert!(!service(&NET, &NET).fits(&service(&NET, &IP)));
        assert!(!service(&NET, &NAMES).fits(&service(&NET, &NET)));
        assert_eq!(service(&IP, &NET).to_string(), "up:<ip, net>");
    }
}
