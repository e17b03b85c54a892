//! What a path can do with a message beside sending it on, at the level of
//! protocols: turn it around, let an acknowledgement ride on it, make one from
//! nothing, share what a stage knows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpora;

use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashway_abi::Count;
use ashway_modules::handler::{Act, Activate, Handler, Instance};
use ashway_modules::{Message, eth as link, fragment, ip::Ip, udp::Udp};
use ashway_path::attrs::{Attrs, names};
use ashway_path::graph::Graph;
use ashway_path::module::{Module, Refused};
use ashway_path::path::{Exit, Limits};
use ashway_path::sim::Single;
use ashway_path::stage::{Cx, Direction, Stage, Step};
use ashway_path::time::Time;
use ashway_wire::{Datagram, emit};
use corpora::*;

const DELAY: Duration = Duration::from_millis(40);

/// A protocol of two bytes over UDP: number of this message, number of the last
/// one that came in (0: none). An acknowledgement alone has number 0. It waits
/// for a message to ride on, but not longer than [`DELAY`] (as TCP's, RFC 1122
/// §4.2.3.2).
struct Acks {
    sent: u8,
    owed: Option<u8>,
}

impl Acks {
    fn header(&mut self, number: u8) -> [u8; 2] {
        [number, self.owed.take().unwrap_or(0)]
    }
}

impl Stage<Message> for Acks {
    fn name(&self) -> &'static str {
        "acks"
    }

    fn take(
        &mut self,
        mut message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if direction == Direction::Backward {
            self.owed = message.bytes().first().copied();
            *cx.wake_at = Some(cx.now + DELAY);
            message.pop(2).unwrap();
            return Step::On(message);
        }
        self.sent += 1;
        let header = self.header(self.sent);
        *cx.wake_at = None;
        message.push(2).unwrap()[..2].copy_from_slice(&header);
        Step::On(message)
    }

    fn wake(&mut self, cx: &mut Cx<'_, Message>) {
        let header = self.header(0);
        cx.also
            .push((Direction::Forward, Message::of_frame(&header)));
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn narrow() -> Attrs {
    let mut attrs = Attrs::new();
    attrs.set(names::LOCAL, V4.1.parse::<SocketAddr>().unwrap());
    attrs.set(names::REMOTE, V4.0.parse::<SocketAddr>().unwrap());
    attrs.set(link::NEXT_MAC, "02:00:00:00:00:01");
    attrs
}

/// `top`, the stage, `udp`, `ip`, `wire`.
fn path_with(stage: Box<dyn Stage<Message>>, top: Top) -> Single<Message> {
    let mut path = Recipe {
        attrs: narrow(),
        ..Recipe::new(top)
    }
    .path();
    path.replace(1..1, vec![stage]).unwrap();
    path
}

fn acks() -> Box<dyn Stage<Message>> {
    Box::new(Acks {
        sent: 0,
        owed: None,
    })
}

fn payload_of(exit: &Exit<Message>) -> Vec<u8> {
    let Exit::Left {
        direction: Direction::Forward,
        message,
        turned: true,
    } = exit
    else {
        panic!("{exit:?}");
    };
    let frame = message.bytes();
    let found = Datagram::parse(frame).unwrap().validate(frame).unwrap();
    frame[found.payload_off..][..found.payload_len].to_vec()
}

/// SCT-10 and 11: the message is turned around within the path, and the
/// acknowledgement of one direction rides on the message of the other.
#[test]
fn an_acknowledgement_rides_on_the_answer() {
    let mut path = path_with(acks(), Top::Echo);
    for number in 1..=3 {
        let request = frame(V4, &[number + 100, number - 1, b'x']);
        let exits = send(&mut path, Direction::Backward, Message::of_frame(&request));
        assert_eq!(exits.len(), 1);
        assert_eq!(payload_of(&exits[0]), [number, number + 100, b'x']);
        assert_eq!(path.wake_at(), None);
    }
    assert_eq!(path.account().originated, 3);
}

/// SCT-12: without an answer to ride on it leaves by itself, made by a timer in
/// the middle of the path.
#[test]
fn without_an_answer_a_timer_makes_the_acknowledgement() {
    let mut path = path_with(acks(), Top::Sink);
    let request = frame(V4, &[101, 0, b'x']);
    let exits = send(&mut path, Direction::Backward, Message::of_frame(&request));
    assert!(matches!(
        exits[..],
        [Exit::Ended {
            fate: Count::Consumed,
            ..
        }]
    ));
    assert_eq!(path.wake_at(), Some(Time(0) + DELAY));
    let out = path.wake(Time(0) + DELAY);
    settled(&path);
    assert_eq!((path.account().originated, path.account().left), (1, 1));
    let headers = emit::Headers {
        source_mac: OUR_MAC,
        destination_mac: THEIR_MAC,
        source: V4.1.parse().unwrap(),
        destination: V4.0.parse().unwrap(),
    };
    assert_eq!(only(out), Ok(emit(&headers, &[0, 101])));
    assert_eq!(path.wake_at(), None);
}

/// SCT-12: messages may come in at any stage, and pass only its neighbours.
#[test]
fn a_message_may_be_injected_at_every_stage() {
    let full = frame(V4, b"abcd");
    let starts = [(3, 0), (2, 14), (1, 34), (0, 42)];
    for (stage, front) in starts {
        let mut path = Recipe::new(Top::Sink).path();
        let mut message = Message::of_frame(&full);
        // What the stages below would have done.
        if front > 0 {
            message.meta.eth = message.pop(14);
            message.meta.protocol = 0x0800;
        }
        if front > 14 {
            let datagram = Datagram::parse(&full).unwrap();
            let address = |end: SocketAddr| SocketAddr::new(end.ip(), 0);
            message.meta.flow = Some(ashway_modules::Flow {
                source: address(datagram.source),
                destination: address(datagram.destination),
            });
            message.meta.ip = message.pop(20);
            message.meta.protocol = 17;
        }
        if front > 34 {
            message.meta.transport = message.pop(8);
        }
        let out = path.inject(stage, Direction::Backward, message, Time(0));
        settled(&path);
        let [
            Exit::Ended {
                message,
                fate: Count::Consumed,
                ..
            },
        ] = out.as_slice()
        else {
            panic!("{out:?}");
        };
        assert_eq!(message.bytes(), b"abcd");
    }
}

/// Reads an attribute that it knows by name, not by whom it is from.
struct Reader;

impl Stage<Message> for Reader {
    fn name(&self) -> &'static str {
        "reader"
    }

    fn take(&mut self, message: Message, _: Direction, cx: &mut Cx<'_, Message>) -> Step<Message> {
        match cx.attrs.number(fragment::REASSEMBLY_FAILED) {
            Some(1..) => Step::End(message, Count::DroppedHandler),
            _ => Step::On(message),
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// SCT-13: what the stage at one end publishes, the stage at the other reads.
#[test]
fn stages_share_what_they_know_without_knowing_each_other() {
    let mut attrs = Attrs::new();
    attrs.set(fragment::REASSEMBLE, 1);
    let recipe = Recipe {
        fragment: true,
        attrs,
        ..Recipe::new(Top::Sink)
    };
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..Limits::default()
    };
    let created = recipe
        .graph()
        .create("p", "top", recipe.attrs.clone(), limits, &[]);
    let mut path = Single::new(created.unwrap().path);
    path.replace(1..1, vec![Box::new(Reader)]).unwrap();
    let fates = |path: &mut Single<Message>, at: Time| {
        let message = Message::of_frame(&frame(V4, b"abcd"));
        only(path.pass(Direction::Backward, message, at)).unwrap_err()
    };
    assert_eq!(fates(&mut path, Time(0)), Count::Consumed);
    // A fragment that stays alone.
    let mut first = frame(V4, &payload(80));
    first[20] = 0x20;
    fix_v4(&mut first);
    assert!(send(&mut path, Direction::Backward, Message::of_frame(&first)).is_empty());
    assert_eq!(fates(&mut path, Time(1)), Count::Consumed);
    let end = path.wake_at().unwrap();
    assert_eq!(path.wake(end), []);
    assert_eq!(fates(&mut path, end), Count::DroppedHandler);
}

/// Remembers where the message lay, answers it with its bytes reversed.
struct Reverse(Arc<Mutex<Vec<usize>>>);

impl Instance for Reverse {
    fn bind(&self, _: &str, _: &Attrs) -> Result<Box<dyn Activate>, Refused> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl Activate for Reverse {
    fn activate(&mut self, message: &mut Message) -> Act {
        let message = message.bytes_mut();
        self.0.lock().unwrap().push(message.as_ptr().addr());
        message.reverse();
        Act::Reply
    }
}

/// SCT-31: from the driver to the handler and back the message stays where it
/// is, whether the stages are merged or not.
#[test]
fn the_handler_sees_the_bytes_that_the_driver_filled() {
    for (ends, headers) in [(V4, 42), (V6, 62)] {
        for rules in [&[][..], &ashway_modules::rules::RULES] {
            let seen = Arc::default();
            let modules: Vec<(&str, Box<dyn Module<Message>>)> = vec![
                ("wire", Box::new(eth())),
                ("ip", Box::new(Ip { name: "ip".into() })),
                ("udp", Box::new(Udp { name: "udp".into() })),
                (
                    "app",
                    Box::new(Handler {
                        name: "app".into(),
                        instance: Arc::new(Reverse(Arc::clone(&seen))),
                    }),
                ),
            ];
            let edges = [
                ("app.down", "udp.up"),
                ("udp.down", "ip.up"),
                ("ip.down", "wire.up"),
            ];
            let graph = Graph::connect(modules, &edges).unwrap();
            let created = graph.create("p", "app", Attrs::new(), Limits::default(), rules);
            let mut path = Single::new(created.unwrap().path);
            let message = Message::of_frame(&frame(ends, b"abcd"));
            let start = message.bytes().as_ptr().addr();
            let exits = send(&mut path, Direction::Backward, message);
            let [
                Exit::Left {
                    message,
                    turned: true,
                    ..
                },
            ] = exits.as_slice()
            else {
                panic!("{exits:?}");
            };
            assert_eq!(message.bytes().as_ptr().addr(), start);
            assert_eq!(*seen.lock().unwrap(), [start + headers]);
            assert_eq!(payload_of(&exits[0]), b"dcba");
        }
    }
}
