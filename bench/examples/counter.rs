//! `ashway bench counter` without the CLI around it, for work on the benchmark:
//! `cargo run --release -p ashway-bench --example counter -- --quick`.

#![forbid(unsafe_code)]

use ashway_bench::counter::{self, Options};

fn main() -> anyhow::Result<()> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let json = std::env::args().any(|arg| arg == "-j");
    let only = std::env::args().skip_while(|arg| arg != "--only").nth(1);
    let report = counter::run(&Options {
        quick,
        only,
        ..Options::default()
    })?;
    if json {
        println!("{:#}", report.document);
    } else {
        print!("{}", report.text);
    }
    Ok(())
}
