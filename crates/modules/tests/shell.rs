//! SCT-25: commands by UDP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use ashway_abi::Count;
use ashway_modules::Message;
use ashway_modules::shell::{Commands, Outcome, Request, Shell, parse};
use ashway_path::attrs::Attrs;
use ashway_path::path::{Exit, Limits};
use ashway_path::sim::Single;
use ashway_path::stage::Direction::Backward;
use ashway_path::time::Time;
use proptest::prelude::*;
use world::{End, attrs, books_close, end, read, send, udp};

const US: &str = "10.0.1.1:9";
const THEM: &str = "10.0.1.2:4000";

/// Notes what it is asked; the outcome comes when the test says so.
#[derive(Default)]
struct Clerk(Mutex<Vec<(SocketAddr, Request, Sender<Outcome>)>>);

impl Commands for Clerk {
    fn begin(&self, from: SocketAddr, request: Request) -> Receiver<Outcome> {
        let (sender, outcome) = channel();
        self.0.lock().unwrap().push((from, request, sender));
        outcome
    }
}

/// Says yes at once.
struct Yes;

impl Commands for Yes {
    fn begin(&self, _: SocketAddr, request: Request) -> Receiver<Outcome> {
        let (sender, outcome) = channel();
        let done = match request {
            Request::Create { path, .. } => {
                let path = path.unwrap_or_else(|| "one".into());
                Ok(format!("path `{path}` is there"))
            }
            Request::Show { path } => Ok(format!("path {path}\nreceived 3\n")),
            Request::Remove { path } if &*path == "long" => Err("é".repeat(1000)),
            Request::Remove { path } => Err(format!("there is no path `{path}`\nsorry")),
        };
        sender.send(done).unwrap();
        outcome
    }
}

fn shell(commands: Arc<dyn Commands>) -> Single<Message> {
    let shell = Shell {
        name: "shell".into(),
        allow: [end(2, THEM).address.ip()].into(),
        commands,
    };
    let graph = world::graph(
        vec![
            ("wire", world::eth("wire", 1, end(1, US))),
            ("ip", world::ip()),
            ("udp", world::udp_module()),
            ("shell", Box::new(shell)),
        ],
        &[
            ("ip.down", "wire.up"),
            ("udp.down", "ip.up"),
            ("shell.down", "udp.up"),
        ],
    );
    world::create(&graph, "shell", Attrs::new(), true).unwrap()
}

/// Sends a command; the reply, if there is one at once.
fn command(path: &mut Single<Message>, from: End, text: &[u8]) -> Option<String> {
    let frame = udp(from, end(1, US), None, text);
    let exits = send(path, Backward, &frame, Time(0));
    replies(&exits, from).pop()
}

fn replies(exits: &[Exit<Message>], to: End) -> Vec<String> {
    exits
        .iter()
        .map(|exit| {
            let Exit::Left {
                message,
                turned: true,
                ..
            } = exit
            else {
                panic!("{exit:?}");
            };
            let frame = read(message.bytes());
            assert_eq!((frame.to, frame.from), (to, end(1, US)));
            let text = String::from_utf8(frame.payload).unwrap();
            text.strip_suffix('\n').unwrap().to_owned()
        })
        .collect()
}

fn wake(path: &mut Single<Message>, millis: u64) -> Vec<Exit<Message>> {
    path.wake(Time(millis * 1_000_000))
}

#[test]
fn a_command_is_read_as_a_command_line_is() {
    let create = Request::Create {
        path: Some("relay".into()),
        module: "wire".into(),
        attrs: attrs(&[("next_hop", "10.0.3.2:9000"), ("ttl", "3"), ("note", "a=b")]),
    };
    for text in [
        "create --name relay --module wire --attr next_hop=10.0.3.2:9000 --attr ttl=3 --attr note=a=b",
        "  create --name relay --attr=next_hop=10.0.3.2:9000 --attr=ttl=3\t--attr=note=a=b --module=wire\r\n",
    ] {
        assert_eq!(parse(text.as_bytes()), Ok(create.clone()));
    }
    assert_eq!(
        parse(b"show relay"),
        Ok(Request::Show {
            path: "relay".into()
        })
    );
    let unnamed = Request::Create {
        path: None,
        module: "wire".into(),
        attrs: Attrs::new(),
    };
    assert_eq!(parse(b"create --module wire"), Ok(unnamed));
    assert_eq!(
        parse(b"rm relay\n"),
        Ok(Request::Remove {
            path: "relay".into()
        })
    );
}

#[test]
fn what_is_wrong_with_a_command_is_said_in_a_line() {
    for (text, said) in [
        (
            "",
            "the command is empty; available: `create`, `show`, `rm`",
        ),
        (
            "creat x",
            "there is no command `creat`; did you mean `create`?",
        ),
        (
            "create",
            "`--module` is missing; write create --module MODULE",
        ),
        ("create --name relay", "`--module` is missing; write create"),
        ("create --name relay --module", "`--module` needs a value"),
        (
            "create --modul wire",
            "no option `--modul`; did you mean `--module`?",
        ),
        ("create wire", "no option `wire`"),
        ("create --module a --module b", "`--module` is there twice"),
        ("create --name a --name b", "`--name` is there twice"),
        (
            "create --module a --attr b",
            "`b` is no attribute; write --attr NAME=VALUE",
        ),
        ("create --module a --attr =b", "`=b` is no attribute"),
        (
            "create --module a --attr b=1 --attr b=2",
            "attribute `b` is there twice",
        ),
        (
            &format!("create --module a --name {}", "x".repeat(65)),
            "64 bytes at most",
        ),
        ("rm", "a name is missing; write rm NAME"),
        ("rm a b", "`rm` takes one name, and no `b`"),
        ("show", "a name is missing; write show NAME"),
        (&"x".repeat(1025), "1024 bytes at most, not 1025"),
    ] {
        let error = parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
    assert!(parse(b"rm \xff").unwrap_err().contains("UTF-8"));
    let many: Vec<_> = (0..65).map(|at| format!("--attr a{at}=1")).collect();
    let text = format!("create --name r --module m {}", many.join(" "));
    let error = parse(text.as_bytes()).unwrap_err();
    assert_eq!(error, "a path has 64 attributes at most");
}

proptest! {
    /// Whatever comes, the answer is text of bounded length.
    #[test]
    fn nothing_breaks_it(bytes in prop::collection::vec(any::<u8>(), 0..1200), words in "(create|show|rm)( |--attr|--module|=|[a-z\u{e9}]){0,20}") {
        let mut path = shell(Arc::new(Yes));
        for text in [bytes, words.into_bytes()] {
            let reply = command(&mut path, end(2, THEM), &text).unwrap();
            prop_assert!(reply.len() < 1400 && !reply.contains(|c: char| ashway_abi::log::acts_on_terminal(c) && c != '\n'), "{reply}");
            let word = reply.split(':').next();
            prop_assert!(word == Some("ok") || word == Some("error"), "{reply}");
        }
        books_close(&path);
    }
}

#[test]
fn replies_come_at_once_if_the_outcome_does() {
    let mut path = shell(Arc::new(Yes));
    let them = end(2, THEM);
    let reply = command(&mut path, them, b"create --name gold --module wire\n");
    assert_eq!(reply.unwrap(), "ok: path `gold` is there");
    let reply = command(&mut path, them, b"rm gold\n");
    assert_eq!(reply.unwrap(), "error: there is no path `gold`\nsorry");
    let reply = command(&mut path, them, b"dance");
    assert!(
        reply
            .unwrap()
            .starts_with("error: there is no command `dance`")
    );
    // 1,400 bytes with its end of line, and no letter cut in two.
    let reply = command(&mut path, them, b"rm long").unwrap();
    assert_eq!(reply, format!("error: {}", "é".repeat(696)));
    let reply = command(&mut path, them, b"show gold").unwrap();
    assert_eq!(reply, "ok: path gold\nreceived 3");
    assert_eq!(path.account().fate(Count::Answered), 5);
    books_close(&path);
}

#[test]
fn strangers_are_refused_and_who_cannot_be_answered_is_not_obeyed() {
    let clerk = Arc::new(Clerk::default());
    let mut path = shell(clerk.clone());
    let stranger = end(3, "10.0.1.3:4000");
    let reply = command(&mut path, stranger, b"rm gold");
    assert_eq!(reply.unwrap(), "error: 10.0.1.3 may not command here");
    let nobody = udp(end(2, "10.0.1.2:0"), end(1, US), None, b"rm gold");
    assert_eq!(
        world::fate(&mut path, Backward, &nobody),
        Count::DroppedNoSender
    );
    assert!(clerk.0.lock().unwrap().is_empty());
}

#[test]
fn an_outcome_may_come_later_or_never() {
    let clerk = Arc::new(Clerk::default());
    let mut path = shell(clerk.clone());
    let them = |port: u16| end(2, &format!("10.0.1.2:{port}"));
    for at in 0..16 {
        let text = format!("rm p{at}");
        assert_eq!(command(&mut path, them(5000 + at), text.as_bytes()), None);
    }
    let busy = command(&mut path, them(6000), b"rm p16").unwrap();
    assert_eq!(busy, "error: 16 commands are being worked on; try again");
    assert_eq!(path.account().absorbed(), 16);
    assert_eq!(path.wake_at(), Some(Time(1_000_000)));
    assert!(wake(&mut path, 1).is_empty());

    let mut asked = std::mem::take(&mut *clerk.0.lock().unwrap());
    assert_eq!(asked.len(), 16);
    let (from, request, sender) = asked.remove(3);
    assert_eq!(from, them(5003).address);
    assert_eq!(request, Request::Remove { path: "p3".into() });
    sender.send(Ok("gone".to_owned())).unwrap();
    assert_eq!(replies(&wake(&mut path, 2), them(5003)), ["ok: gone"]);
    // There is room for one again.
    assert_eq!(command(&mut path, them(6000), b"rm p16"), None);

    // Forgotten by who was to see to it; never settled.
    drop(asked.remove(0));
    assert_eq!(
        replies(&wake(&mut path, 3), them(5000)),
        ["error: the node dropped the command before it was run"]
    );
    assert!(wake(&mut path, 4999).is_empty());
    let late = wake(&mut path, 5001);
    assert_eq!(late.len(), 15);
    assert_eq!(
        replies(&late[..1], them(5001)),
        ["error: no outcome within 5 s"]
    );
    assert_eq!(path.wake_at(), None);
    assert_eq!((path.account().originated, path.account().left), (18, 18));
    books_close(&path);
}

#[test]
fn what_waits_goes_with_the_path() {
    let clerk = Arc::new(Clerk::default());
    let mut path = shell(clerk.clone());
    assert_eq!(command(&mut path, end(2, THEM), b"rm p"), None);
    drop(path);
    let (_, _, sender) = clerk.0.lock().unwrap().pop().unwrap();
    assert!(sender.send(Ok("gone".to_owned())).is_err());
}

/// SCT-25 whole: a datagram creates a path, by which the next datagram goes.
#[test]
fn a_datagram_creates_a_path_that_works() {
    let clerk = Arc::new(Clerk::default());
    let mut shell = shell(clerk.clone());
    let graph = world::graph(
        vec![
            ("wire", world::eth("wire", 1, end(1, US))),
            ("ip", world::ip()),
            ("udp", world::udp_module()),
            (
                "echo",
                world::Fake::new(|_| ashway_modules::handler::Act::Reply).module("echo"),
            ),
        ],
        &[
            ("ip.down", "wire.up"),
            ("udp.down", "ip.up"),
            ("echo.down", "udp.up"),
        ],
    );
    let them = end(2, THEM);
    let text = b"create --name gold --module echo --attr local=10.0.1.1:9000";
    assert_eq!(command(&mut shell, them, text), None);

    // What a node does with it between two messages.
    let (_, request, sender) = clerk.0.lock().unwrap().pop().unwrap();
    let Request::Create {
        path,
        module,
        attrs,
    } = request
    else {
        panic!("{request:?}");
    };
    let path = path.unwrap();
    let created = graph
        .create(&path, &module, attrs, Limits::default(), &[])
        .unwrap();
    sender.send(Ok(format!("path `{path}`"))).unwrap();

    assert_eq!(replies(&wake(&mut shell, 1), them), ["ok: path `gold`"]);
    let mut gold = Single::new(created.path);
    assert_eq!(gold.name(), "gold");
    assert_eq!(
        gold.filter().unwrap(),
        "udp and dst port 9000 and ip and dst host 10.0.1.1"
    );
    let frame = udp(them, end(1, "10.0.1.1:9000"), None, b"hello");
    assert_eq!(
        world::through(&mut gold, Backward, &frame).payload,
        b"hello"
    );
}
