//! Libraries as they are answer real requests in the kernel tier.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fmt::Write;
use std::path::PathBuf;

use ashway_bench::programs::{LIBRARIES, inputs};
use ashway_bench::promote::Native;
use ashway_rig::skip::{skip, skip_unless_root};
use ashway_rig::{Rig, RigOptions};
use serde_json::Value;

/// As long as one datagram on a veth.
const LONGEST: usize = 1472;

/// inflate has been here longer, and has no ordinary program.
const ALL: [&str; 5] = [
    "inflate",
    LIBRARIES[0],
    LIBRARIES[1],
    LIBRARIES[2],
    LIBRARIES[3],
];

fn path<'s>(status: &'s Value, name: &str) -> &'s Value {
    let mut paths = status["paths"].as_array().unwrap().iter();
    paths.find(|path| path["name"] == name).unwrap()
}

#[test]
fn libraries_answer_on_the_wire_in_the_kernel_tier() {
    if skip_unless_root() {
        return;
    }
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/programs");
    let wasm = |name: &str| folder.join(name).with_extension("wasm");
    if let Some(missing) = ALL.into_iter().find(|name| !wasm(name).is_file()) {
        return skip(format!("`cargo xtask programs` did not fetch {missing}"));
    }
    let rig = Rig::new("libraries", RigOptions::default()).unwrap();
    let mut config = "[iface.b0]\n".to_owned();
    for (name, port) in ALL.into_iter().zip((7001..).step_by(2)) {
        let file = wasm(name);
        write!(
            config,
            "[handler.{name}]\nfile = {file:?}\nallow = ['reply']\n"
        )
        .unwrap();
        for (tier, port) in [("kernel", port), ("user", port + 1)] {
            write!(
                config,
                "[path.{name}_{tier}]\niface = 'b0'\nmatch = 'udp and dst port {port}'\n\
                 handler = '{name}'\ntier = '{tier}'\nbudget = '10 ms'\n"
            )
            .unwrap();
        }
    }
    let node = rig.node(config).start().unwrap();
    for (name, port) in ALL.into_iter().zip((7001..).step_by(2)) {
        let messages = inputs(name, 11, 250).into_iter();
        let messages: Vec<_> = messages
            .filter(|message| message.len() <= LONGEST)
            .collect();
        assert!(messages.len() >= 50, "{name}: {}", messages.len());
        let native = Native::find(&folder, name).map(|native| native.answer(&messages).unwrap());
        let [kernel, user] = [port, port + 1].map(|port| rig.client_a(port).unwrap());
        for (number, message) in messages.iter().enumerate() {
            let answer = kernel.ask(message).unwrap();
            assert_ne!(answer, *message, "{name} {number}");
            assert!(answer == user.ask(message).unwrap(), "{name} {number}");
            if let Some(native) = &native {
                assert!(answer == native[number].1, "{name} {number}");
            }
        }
        let status = node.status().unwrap();
        let ran = |tier| path(&status, &format!("{name}_{tier}"))["ran_in"].clone();
        let [kernel, user] = ["kernel", "user"].map(ran);
        println!("{name}: {kernel} {user}");
        // A message may come while the instance is taken.
        let all = messages.len() as u64;
        assert!(
            kernel["kernel"].as_u64().unwrap() >= all - all / 10,
            "{name}: {status:#}"
        );
        assert_eq!(user["user"], all, "{name}: {status:#}");
    }
    node.stop().unwrap();
}
