//! Modules: the nodes of the graph, as path creation sees them.

use crate::attrs::Attrs;
use crate::service::Service;
use crate::stage::Stage;

/// What all modules of one kind have in common.
#[derive(Debug)]
pub struct Kind {
    /// Its word in the configuration: `udp`.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Its services; they are named by their position.
    pub services: &'static [Service],
    /// Its parameters: the keys of its section beside `kind` and the services.
    pub params: &'static [Param],
}

/// A parameter of a kind of module. Its type is said by whoever reads it
/// ([`crate::read::Params`]).
#[derive(Debug)]
pub struct Param {
    /// Its key in the configuration: `next_hop`.
    pub name: &'static str,
    /// One line for people, with unit and default.
    pub about: &'static str,
}

impl Kind {
    /// The position of the service of this name.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<usize> {
        self.services
            .iter()
            .position(|service| service.name == name)
    }
}

/// A module of the graph. `M` is what messages are made of.
pub trait Module<M> {
    /// What it is.
    fn kind(&self) -> &'static Kind;

    /// Gets ready, before any path of it exists, behind the modules that it comes
    /// `after`. Called once in the module's life.
    ///
    /// # Errors
    ///
    /// Why it cannot work here; then whatever it has done is undone when it is dropped.
    fn init(&mut self) -> Result<(), Refused> {
        Ok(())
    }

    /// Contributes a stage to the path that is being created, and says where it
    /// goes on (Scout's `createStage`).
    ///
    /// `entered` is the service by which the path comes in; `None` where
    /// creation begins. The attributes may be read and rewritten; those that
    /// are there at the end are the path's.
    ///
    /// # Errors
    ///
    /// Why no path with these attributes can pass through here.
    fn stage(&self, entered: Option<usize>, attrs: &mut Attrs) -> Result<StageAndNext<M>, Refused>;
}

/// A module's contribution to a path.
pub struct StageAndNext<M> {
    /// Its stage.
    pub stage: Box<dyn Stage<M>>,
    /// Where the path goes on.
    pub next: Next,
}

/// Where a path goes on behind a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nowhere: the module is a leaf for this path.
    End,
    /// Through this service, to the one module that is connected there; if there
    /// are several, the path ends here, because nobody can say which.
    Through(usize),
    /// Through this service, to the module of this name.
    To(usize, Box<str>),
    /// The attributes do not say: the path ends here.
    Undecided,
}

/// Why a module takes no part in a path, or cannot be initialised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{because}")]
pub struct Refused {
    /// What speaks against it.
    pub because: String,
    /// What to do about it.
    pub hint: String,
}
