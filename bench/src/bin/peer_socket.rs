//! `ashway-peer-socket PORT sleeping|spinning`: the ordinary UDP server that
//! Ashway is measured against.

#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    ashway_bench::socket_server::main(&args)
}
