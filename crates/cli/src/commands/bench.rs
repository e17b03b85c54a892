//! `ashway bench`: measurements, which are a program of their own.
//!
//! They bring a test rig, so `ashway-bench` lies beside this program where somebody
//! wants to measure, and nowhere else.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::face::Face;
use crate::failure::{Exit, Failure};

/// Measure on this host, in network namespaces of its own (root)
///
/// Runs `ashway-bench`, which lies beside this program and has its own `--help`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, disable_help_subcommand = true)]
pub(crate) struct Bench {
    /// What to measure, and how: `ashway bench --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

impl Bench {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let mut args = self.args;
        if face.json && !args.iter().any(|arg| arg == "-j" || arg == "--json") {
            args.push("-j".into());
        }
        Err(become_bench(&args))
    }
}

/// Runs `ashway-bench` in this process's place; says why that failed.
pub(crate) fn become_bench(args: &[OsString]) -> Failure {
    let program = match std::env::current_exe() {
        Ok(this) => this.with_file_name("ashway-bench"),
        Err(error) => {
            let failure = Failure::new(Exit::Failed, "cannot find out where `ashway` lies");
            return failure.because(&error);
        }
    };
    let error = Command::new(&program).args(args).exec();
    cannot_run(&program, &error)
}

fn cannot_run(program: &Path, error: &std::io::Error) -> Failure {
    let shown = program.display();
    if error.kind() == std::io::ErrorKind::NotFound {
        let failure = Failure::new(Exit::NotSupported, format!("there is no `{shown}`"));
        return failure.hint(
            "measurements are a program of their own: `cargo build --release` in Ashway's \
             source makes `target/release/ashway-bench`; put it beside `ashway`",
        );
    }
    Failure::new(Exit::Failed, format!("cannot run `{shown}`")).because(error)
}
