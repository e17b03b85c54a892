//! The commands, one file each, and the grammar that leads to them:
//! `ashway OBJECT VERB [NAME] [--options]`, daily verbs at the top.

use std::path::PathBuf;
use std::str::FromStr;

use ashway_api::client::{self, Client};
use ashway_api::{WordError, short};
use ashway_config::{NAME_HINT, is_name};
use ashway_path::problem::suggest;
use clap::{Args, Parser, Subcommand};

use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};

mod apply;
mod bench;
mod bind;
mod cancel;
mod capture;
mod check;
mod confirm;
mod demux;
mod doctor;
mod graph;
mod handler;
mod iface;
mod load;
mod map;
mod observe;
mod path;
mod pipe;
mod run;
mod status;
mod trace;
mod why;

const EXAMPLES: &str = "\
Examples:
  ashway check node.toml               look at a configuration, change nothing
  ashway demux match node.toml in.pcap which path each frame would belong to
  ashway run node.toml --try 30        run it; detach after 30 s unless confirmed
  ashway confirm                       keep it
  ashway plan node.toml                what would change in the node that runs
  ashway apply node.toml               change it; what stays the same loses nothing
  ashway status                        where every message went
  ashway why inc                       why messages of a path ended as they did
  ashway trace 'udp port 7777'         what happens to messages, step by step
  ashway capture -i veth0 -w out.pcapng   the same for Wireshark, with verdicts
  ashway handler map counter -- ./app  start a program with the handler's memory
  ashway handler check counter.wasm    what each tier makes of a handler
  ashway handler run counter.wasm --hex 01 --tier both     try it, without an interface
  ashway pipe show cksum16             how data manipulations become one loop
  ashway doctor                        what this host can do, and how to get more

Exit codes:
  0 done                  1 failed               2 usage or configuration
  3 handler refused       4 privilege missing    5 node not reachable
  6 not supported by this kernel, or by what is installed";

/// Runs application code where messages arrive: in the kernel or right above.
///
/// A node (`ashway run`) attaches to network interfaces and gives the messages
/// that match its paths to WebAssembly handlers. Everything else goes on to the
/// host, untouched.
#[derive(Debug, Parser)]
#[command(name = "ashway", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Print one JSON document instead of text
    #[arg(short, long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Run),
    Check(check::Check),
    Plan(apply::Plan),
    Apply(apply::Apply),
    Status(status::Status),
    Why(why::Why),
    Trace(trace::Trace),
    Capture(capture::Capture),
    Confirm(confirm::Confirm),
    Cancel(cancel::Cancel),
    Bind(bind::Bind),
    Unbind(bind::Unbind),
    Doctor(doctor::Doctor),
    #[command(subcommand)]
    Graph(graph::Graph),
    #[command(subcommand)]
    Path(path::Path),
    #[command(subcommand)]
    Demux(demux::Demux),
    #[command(subcommand)]
    Handler(handler::Handler),
    #[command(subcommand)]
    Iface(iface::Iface),
    #[command(subcommand)]
    Pipe(pipe::Pipe),
    Bench(bench::Bench),
}

impl Command {
    /// Does what was asked for. `Ok` is the exit code of a command that did
    /// its work: 0, but for `doctor`, whose verdict is its exit code.
    pub(crate) fn run(self, face: Face) -> Result<u8, Failure> {
        match self {
            Self::Run(command) => command.run(face),
            Self::Check(command) => command.run(face),
            Self::Plan(command) => command.run(face),
            Self::Apply(command) => command.run(face),
            Self::Status(command) => command.run(face),
            Self::Why(command) => command.run(face),
            Self::Trace(command) => command.run(face),
            Self::Capture(command) => command.run(face),
            Self::Confirm(command) => command.run(face),
            Self::Cancel(command) => command.run(face),
            Self::Bind(command) => command.run(face),
            Self::Unbind(command) => command.run(face),
            Self::Doctor(command) => return command.run(face),
            Self::Graph(command) => command.run(face),
            Self::Path(command) => command.run(face),
            Self::Demux(command) => command.run(face),
            Self::Handler(command) => return command.run(face),
            Self::Iface(command) => command.run(face),
            Self::Pipe(command) => command.run(face),
            Self::Bench(command) => command.run(face),
        }
        .map(|()| 0)
    }
}

/// Which node is meant.
#[derive(Clone, Debug, Args)]
pub(crate) struct Node {
    /// The node's control socket [default: `/run/ashway/NODE.sock` for root, else
    /// `$XDG_RUNTIME_DIR/ashway/NODE.sock`]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The node's name, if its socket is where it is by default
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        conflicts_with = "socket"
    )]
    node: String,
}

impl Node {
    fn connect(self) -> Result<Client, Failure> {
        let socket = match self.socket {
            Some(socket) => socket,
            None if is_name(&self.node) => client::default_socket(&self.node),
            None => {
                let error = format!("`{}` cannot be the name of a node", clean(&self.node));
                let hint = format!("{NAME_HINT}; `--socket PATH` names a socket");
                return Err(Failure::new(Exit::Usage, error).hint(hint));
            }
        };
        Ok(Client::connect(&socket)?)
    }
}

/// One of the words of `key`; without one, the default.
fn word<T: FromStr<Err = WordError> + Default>(
    key: &str,
    text: Option<&str>,
) -> Result<T, Failure> {
    text.map_or_else(|| Ok(T::default()), |text| one_of(key, text))
}

/// One of the words of `key`.
fn one_of<T: FromStr<Err = WordError>>(key: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|WordError { words }| {
        let text = short(text);
        let failure = Failure::new(Exit::Usage, format!("`{key}` cannot be `{text}`"));
        failure.hint(suggest(&text, words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }
}
