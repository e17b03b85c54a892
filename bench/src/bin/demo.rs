//! `ashway-demo [--json FILE] [--requests N] [--rootless]`: the main job, shown.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use ashway_bench::demo::{self, Options};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::from_args(&args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}\n{}", demo::USAGE);
            return ExitCode::from(2);
        }
    };
    match demo::run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}
