//! Prints a JSON Schema of the control socket, for programs that are not in Rust.
//!
//! ```text
//! cargo run -p ashway-api --features schema --example schema              names them
//! cargo run -p ashway-api --features schema --example schema request load
//! cargo run -p ashway-api --features schema --example schema answer status
//! cargo run -p ashway-api --features schema --example schema event
//! cargo run -p ashway-api --features schema --example schema refusal
//! ```

use std::process::ExitCode;

use ashway_api::answer::Event;
use ashway_api::{Refusal, Request};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let schema = match &words[..] {
        ["request", name] => Request::schemas(name).map(|[request, _]| request),
        ["answer", name] => Request::schemas(name).map(|[_, answer]| answer),
        ["event"] => Some(schemars::schema_for!(Event)),
        ["refusal"] => Some(schemars::schema_for!(Refusal)),
        _ => None,
    };
    if let Some(schema) = schema {
        println!("{:#}", schema.to_value());
        return ExitCode::SUCCESS;
    }
    println!("event\nrefusal");
    for name in Request::NAMES {
        println!("request {name}\nanswer {name}");
    }
    if words.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
