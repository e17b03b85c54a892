//! Stages for tests: a name and a closure.

#![allow(dead_code, reason = "not every test uses everything")]

use std::any::Any;

use ashway_path::attrs::Attrs;
use ashway_path::path::{Limits, Path};
use ashway_path::stage::{Cx, Direction, Stage, Step};

/// A stage that does what a closure says.
pub(crate) struct Do<F> {
    pub(crate) name: &'static str,
    pub(crate) take: F,
}

impl<M, F> Stage<M> for Do<F>
where
    F: FnMut(M, Direction, &mut Cx<'_, M>) -> Step<M> + Send + 'static,
{
    fn name(&self) -> &str {
        self.name
    }

    fn take(&mut self, message: M, direction: Direction, cx: &mut Cx<'_, M>) -> Step<M> {
        (self.take)(message, direction, cx)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

pub(crate) type Stages<M> = Vec<Box<dyn Stage<M>>>;

/// A stage, boxed.
pub(crate) fn stage<M, F>(name: &'static str, take: F) -> Box<dyn Stage<M>>
where
    F: FnMut(M, Direction, &mut Cx<'_, M>) -> Step<M> + Send + 'static,
{
    Box::new(Do { name, take })
}

/// A stage that lets everything pass.
pub(crate) fn on<M: 'static>(name: &'static str) -> Box<dyn Stage<M>> {
    stage(name, |message, _, _| Step::On(message))
}

/// An established path with these limits.
pub(crate) fn limited<M>(name: &str, stages: Stages<M>, limits: Limits) -> Path<M> {
    let mut path = Path::assemble(name, stages, Attrs::new(), limits).expect("enough memory");
    path.establish().expect("nothing to establish");
    path
}

/// An established path.
pub(crate) fn path<M>(name: &str, stages: Stages<M>) -> Path<M> {
    limited(name, stages, Limits::default())
}
