//! A message that stops a handler stops it again at the same source line, in either
//! tier, from what the node has kept and without the node.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{Config, control as ask, run, text, until};
use ashway_netns::traffic::{TIERS, path};
use ashway_rig::{Rig, RigOptions, skip_unless_root};
use serde_json::json;

#[test]
fn what_stopped_a_handler_stops_it_again_at_the_same_line() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("faults", RigOptions::default()).unwrap();
    let handlers = ["wild", "divide", "outside"];
    let config =
        handlers
            .iter()
            .zip(7001..)
            .fold(Config::on_b0("native"), |config, (handler, port)| {
                let config = config.handler(handler).unwrap();
                path(
                    config,
                    handler,
                    handler,
                    port,
                    TIERS[0],
                    "on_fault = \"drop\"",
                )
            });
    let node = rig.node(config).start().unwrap();
    for (handler, port) in handlers.iter().zip(7001..) {
        let client = rig.client_a(port).unwrap();
        // Twice the same place: kept once.
        for _ in 0..2 {
            client.send(&[0xff, 0xff, 0, 0, 0, 0, 0, 0]).unwrap();
        }
        let request = json!({ "request": "faults", "handler": handler });
        let fault = until("the handler is stopped twice", || {
            let list = ask(&node, &request).unwrap();
            let fault = list.as_array().unwrap().first().cloned()?;
            (fault["times"] == 2).then_some(fault)
        });
        let number = fault["fault"].to_string();
        let cause = fault["cause"].as_str().unwrap();
        let place = format!("apps/handlers/{handler}.c:{}", fault["line"]);
        println!("{handler}: {cause} at {place}");
        for tier in ["user", "kernel"] {
            let mut command = node.command(["handler", "replay", &number, "--tier", tier]);
            let output = run(&mut command);
            let words = text(&output);
            assert!(output.status.success(), "{handler}, {tier}: {words}");
            let again = format!("in the {tier} tier: {cause} at {place}: the same");
            assert!(words.contains(&again), "{handler}: {words}");
        }
    }
    let listed = text(&run(&mut node.command(["handler", "faults"])));
    assert!(listed.contains("apps/handlers/divide.c:"), "{listed}");
    // Another number, and a name that is none.
    let output = run(&mut node.command(["handler", "replay", "77"]));
    assert!(text(&output).contains("no fault `77`"), "{}", text(&output));
    let output = run(&mut node.command(["handler", "replay", "../x"]));
    assert_eq!(output.status.code(), Some(2));
    // Without the node.
    let file = node.config().parent().unwrap().join("fault.json");
    let file = file.to_str().unwrap().to_owned();
    let output = run(&mut node.command(["handler", "faults", "--export", "2", &file]));
    assert!(output.status.success(), "{}", text(&output));
    let command = |words: [&str; 3]| run(&mut node.command(words));
    let output = command(["handler", "replay", &file]);
    assert!(text(&output).contains("the same"), "{}", text(&output));
    // The twin: another memory, and another message, have another end.
    let kept = std::fs::read_to_string(&file).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&kept).unwrap();
    other["message"] = json!("ffffffffffffffff");
    std::fs::write(&file, other.to_string()).unwrap();
    let output = command(["handler", "replay", &file]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("another end"), "{}", text(&output));
    std::fs::write(&file, "{}").unwrap();
    assert_eq!(command(["handler", "replay", &file]).status.code(), Some(2));
    node.stop().unwrap();
}
