//! `ashway run`: a node in the foreground.

use std::path::PathBuf;

use ashway_api::client;
use ashway_config as config;
use ashway_daemon::{RunError, RunOptions};
use clap::Args;

use super::check;
use super::handler::file;
use crate::face::Face;
use crate::failure::{Exit, Failure};

/// Run a node in the foreground
///
/// Says what attaching costs the host's own traffic, attaches to the interfaces
/// of the configuration, and serves its paths until SIGINT, SIGTERM or SIGQUIT.
/// Then, or if it is killed, the interfaces are as they were. SIGHUP has it read its
/// configuration again, as `ashway apply` does; one that was started from a terminal
/// ends when that is closed.
///
/// An interface that another program holds is refused, and nothing is changed.
/// With -j the node's lines go to standard error, and standard output has one
/// document if the node does not start or fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway run paths/02-counter.toml
  ashway run node.toml --try 30        then `ashway confirm` within 30 s
  ashway run node.toml --socket ./node.sock
  ashway run replay.toml --until-end   an interface of it reads a capture")]
pub(crate) struct Run {
    /// The configuration (`paths/` has examples)
    config: PathBuf,
    /// Detach after this time unless `ashway confirm` comes first
    #[arg(long = "try", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    try_seconds: Option<u64>,
    /// End when the captures that interfaces read (`attach = "pcap"`) are at their ends
    #[arg(long)]
    until_end: bool,
    /// The control socket [default: `socket` of the configuration, else
    /// `/run/ashway/NODE.sock` for root, `$XDG_RUNTIME_DIR/ashway/NODE.sock`]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Run {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        if file::is_handler(&self.config) {
            let file = self.config.display();
            let failure = Failure::new(
                Exit::Usage,
                format!("`{file}` is a handler, not a configuration"),
            );
            let failure = failure.hint(format!(
                "name it in one (`[handler.NAME]`, `file = \"{file}\"`), or try it with \
                 `ashway handler run {file}`"
            ));
            return Err(failure.in_file(&self.config));
        }
        let config = config::load(&self.config)?;
        check::agrees(&config)?;
        if self.until_end && !config.ifaces.iter().any(|iface| iface.own.read.is_some()) {
            let message = "no interface reads a capture, so there is no end to wait for";
            let failure = Failure::new(Exit::Usage, message.to_owned());
            let hint =
                "give one `attach = \"pcap\"` and `read = \"FILE\"`, or leave `--until-end` out";
            return Err(failure.hint(hint).in_file(&self.config));
        }
        let socket = self
            .socket
            .or_else(|| config.node.socket.clone())
            .unwrap_or_else(|| client::default_socket(&config.node.name));
        let options = RunOptions {
            try_seconds: self.try_seconds,
            socket,
            until_end: self.until_end,
            lines_to_stderr: face.json,
        };
        ashway_daemon::run(&config, &options).map_err(|error| {
            if let RunError::Mistakes(mistakes) = error {
                return mistakes.into();
            }
            let (message, because, hint) = error.report();
            let mut failure = Failure::new(Exit::from_number(error.exit_code()), message);
            failure.because = because;
            failure.because.extend(error.caret().map(str::to_owned));
            failure.hint = hint;
            failure.in_file(&self.config)
        })
    }
}
