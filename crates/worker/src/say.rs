//! Lines for whoever started the node.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use ashway_config::diagnostics::clean;

/// Where they go; a process has one standard output.
static LINES_TO_STDERR: AtomicBool = AtomicBool::new(false);

/// Has lines go to standard error from now on, because standard output is for a document; or
/// to standard output.
pub fn to_stderr(wanted: bool) {
    LINES_TO_STDERR.store(wanted, Ordering::Relaxed);
}

/// Prints a line. That nobody reads any more is no reason to stop serving, so
/// errors are ignored; `println!` would panic.
pub fn say(line: &str) {
    // It may name what a stranger's file says of itself.
    let line = clean(line);
    let _ = if LINES_TO_STDERR.load(Ordering::Relaxed) {
        writeln!(std::io::stderr(), "{line}")
    } else {
        writeln!(std::io::stdout(), "{line}")
    };
}

/// So many of these, as a line or a refusal has it.
#[must_use]
pub fn plural(count: usize, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}
