//! `ashway bench pipes` without the CLI around it:
//! `cargo run --release -p ashway-bench --example pipes -- --quick`; with
//! `--calibrate` it is `ashway pipe calibrate`.

#![forbid(unsafe_code)]

use ashway_bench::pipes::{self, Options};

fn main() -> anyhow::Result<()> {
    if std::env::args().any(|arg| arg == "--calibrate") {
        print!("{}", pipes::calibrate()?);
        return Ok(());
    }
    let quick = std::env::args().any(|arg| arg == "--quick");
    let json = std::env::args().any(|arg| arg == "-j");
    let report = pipes::run(&Options { rounds: 5, quick })?;
    if json {
        println!("{:#}", report.document);
    } else {
        print!("{}", report.text);
    }
    Ok(())
}
