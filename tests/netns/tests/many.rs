//! Many handlers of which one has nearly all messages: the worker leaves the others alone
//! until they have some, and then they are served like any.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use ashway_netns::node::{Config, at_rest, entry};
use ashway_netns::traffic::{Over, flood};
use ashway_rig::{Rig, RigOptions, handler, skip_unless_root};

/// How many handlers there are beside the busy one.
const OTHERS: u16 = 40;

/// How often each of them is asked.
const TIMES: u32 = 25;

/// Beside a flood, which never lets the worker sleep, each of the others is asked now and
/// then: always behind a while without messages, so that it rings, or just when it is left
/// alone. An answer that does not come is a message that nobody looks for.
#[test]
fn a_handler_that_has_seldom_messages_is_served_beside_a_busy_one() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("many", RigOptions::default()).unwrap();
    let file = handler("counter").unwrap();
    let mut config = Config::on_b0("native")
        .handler("echo")
        .unwrap()
        .path("echo", 7777, "user");
    for other in 0..OTHERS {
        let name = format!("h{other}");
        config = config.handler_file(&name, &file);
        config = config.path(&name, 8000 + other, "user");
    }
    let node = rig.node(config).start().unwrap();
    let busy = rig.client_a(7777).unwrap();
    let clients: Vec<_> = (0..OTHERS)
        .map(|other| rig.client_a(8000 + other).unwrap())
        .collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| flood(&busy, 1, &over));
        for time in 1..=TIMES {
            for client in &clients {
                assert_eq!(client.ask_number(1).unwrap(), time);
            }
        }
        over.store(true, Ordering::Release);
    });
    let status = at_rest(&node);
    for other in 0..OTHERS {
        let path = entry(&status, "paths", &format!("h{other}"));
        assert_eq!(path["received"], TIMES, "{path:#}");
    }
    assert!(entry(&status, "paths", "echo")["received"].as_u64() > Some(1000));
    node.stop().unwrap();
}
