//! The `ashway` command.
//!
//! Says what the daemon, the compilers and the kernel say, to a person or to a
//! program, and does nothing else: each command is a file in [`commands`].

#![forbid(unsafe_code)]

mod commands;
mod face;
mod failure;
mod table;

use std::process::ExitCode;

use clap::Parser;

use commands::Cli;
use face::Face;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return face::usage(&error),
    };
    let face = Face { json: cli.json };
    match cli.command.run(face) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => face.fail(&failure),
    }
}
