//! The signals that a node is told.

use std::io::IsTerminal;
use std::os::unix::net::UnixStream;

use ashway_node::{RunError, Told};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// Where the signals that end a node, or bring it to its file, are told from now on.
pub(crate) fn watch() -> Result<Told, RunError> {
    let system = |source| RunError::System {
        doing: "watch for signals",
        source,
    };
    let listen = |signals: &[i32]| -> Result<UnixStream, RunError> {
        let (told, teller) = UnixStream::pair().map_err(system)?;
        told.set_nonblocking(true).map_err(system)?;
        for signal in signals {
            let teller = teller.try_clone().map_err(system)?;
            signal_hook::low_level::pipe::register(*signal, teller).map_err(system)?;
        }
        Ok(told)
    };
    Ok(Told {
        stop: listen(&[SIGTERM, SIGINT, SIGQUIT])?,
        again: listen(&[SIGHUP])?,
        on_terminal: std::io::stdin().is_terminal(),
    })
}
