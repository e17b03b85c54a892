//! `ashway run` and `ashway doctor`: what puts a node's parts together, and what looks at the
//! host it is to run on.

#![forbid(unsafe_code)]

pub mod doctor;
mod signals;

use ashway_config::Config;
use ashway_node::Control;
pub use ashway_node::{RunError, RunOptions};

/// Runs a node until SIGTERM, SIGINT, or the end of a trial.
///
/// Says what attaching costs before it attaches, and a line that starts with
/// `ready` once messages are answered.
///
/// # Errors
///
/// [`RunError`]; nothing is left behind.
pub fn run(config: &Config, options: &RunOptions) -> Result<(), RunError> {
    // First of all, so that a signal during the start leaves no trace either.
    let told = signals::watch()?;
    ashway_worker::say::to_stderr(options.lines_to_stderr);
    let mut control = Control::listen(&options.socket).map_err(|source| {
        let socket = options.socket.clone();
        RunError::Control { socket, source }
    })?;
    let (mut node, engine) = ashway_node::build(config)?;
    ashway_node::serve(&mut node, &engine, &mut control, &told, options)
}
