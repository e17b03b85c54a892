//! What `trace` and `capture` share: asking a node to be observed, and hearing what
//! it says until enough has been heard.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashway_api::Said;
use ashway_api::answer::{Event, Lost, Packet, Silent};
use ashway_api::request::Observe;
use ashway_demux::parse;
use ashway_node::why::Flow;
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::Node;
use crate::face::{clean, tame};
use crate::failure::{Exit, Failure};

/// How often it is looked whether it was enough.
const LOOK: Duration = Duration::from_millis(100);

/// How long what has been said already may take at the end.
const REST: Duration = Duration::from_secs(2);

/// When to stop.
#[derive(Debug, Args)]
pub(super) struct Enough {
    /// Stop after so many messages
    #[arg(long, value_name = "N")]
    pub(super) count: Option<u64>,
    /// Stop after so many seconds
    #[arg(long, value_name = "S")]
    pub(super) seconds: Option<u64>,
}

/// The words of a filter, or of a flow, as a filter. What is wrong with it is shown
/// at its place.
pub(super) fn filter(words: &[String]) -> Result<Option<String>, Failure> {
    let text = words.join(" ");
    if text.trim().is_empty() {
        return Ok(None);
    }
    let Err(error) = parse(&text) else {
        return Ok(Some(text));
    };
    if text.contains('>')
        && let Ok(flow) = Flow::parse(&text)
    {
        return Ok(Some(flow.filter()));
    }
    let before = text.get(..error.span.start).unwrap_or_default();
    let width = text
        .get(error.span.clone())
        .map_or(0, |at| at.chars().count());
    let mut failure = Failure::new(Exit::Usage, format!("no filter: {}", error.message));
    // Both lines are shown behind the same word, so the carets stand below the text.
    let caret = " ".repeat(before.chars().count()) + &"^".repeat(width.max(1));
    failure.because.extend([text, caret]);
    Err(if error.hint.is_empty() {
        failure
    } else {
        failure.hint(error.hint)
    })
}

/// Says something beside the result; where nobody reads it, nobody misses it.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", tame(line.to_owned()));
}

/// A line, as it came and as it was read.
fn read(line: &[u8]) -> Result<(Value, Event), serde_json::Error> {
    let document: Value = serde_json::from_slice(line)?;
    let event = Event::deserialize(&document)?;
    Ok((document, event))
}

/// What a node says, line by line.
pub(super) struct Heard {
    stream: UnixStream,
    waiting: Vec<u8>,
    /// What the Unix clock shows when the node's shows 0.
    pub(super) epoch: Duration,
    /// Interrupted by the user.
    stopped: Arc<AtomicBool>,
    until: Option<Instant>,
    left: u64,
    /// Since when the node knows that it is enough.
    ending: Option<Instant>,
    /// Messages that could not be told of.
    pub(super) lost: u64,
}

impl Heard {
    /// Asks, and begins to hear.
    pub(super) fn new(node: Node, request: Observe, enough: &Enough) -> Result<Self, Failure> {
        let system = |error: std::io::Error| {
            Failure::new(Exit::Failed, "the node cannot be heard").because(&error)
        };
        // A signal ends the observation, and then there is still something to say.
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stopped)).map_err(system)?;
        }
        let (observing, stream) = node.connect()?.observe(request)?;
        stream.set_read_timeout(Some(LOOK)).map_err(system)?;
        for Silent { what, because } in &observing.silent {
            let (what, because) = (clean(what), clean(because));
            say(&format!("{what} cannot be observed: {because}"));
        }
        say("observing; Ctrl-C ends it");
        Ok(Self {
            stream,
            waiting: Vec::new(),
            epoch: Duration::from_nanos(observing.epoch_ns),
            stopped,
            until: enough
                .seconds
                .map(|seconds| Instant::now() + Duration::from_secs(seconds)),
            left: enough.count.unwrap_or(u64::MAX),
            ending: None,
            lost: 0,
        })
    }

    /// The next message; `None` when it is enough.
    ///
    /// # Errors
    ///
    /// If the node has ended, or says what makes no sense.
    pub(super) fn next(&mut self) -> Result<Option<Said<Packet>>, Failure> {
        let mut piece = [0; 16384];
        loop {
            let over = self.until.is_some_and(|until| Instant::now() >= until);
            let over = over || self.left == 0 || self.stopped.load(Ordering::Relaxed);
            if over && self.is_over() {
                return Ok(None);
            }
            if let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.waiting.drain(..=end).collect();
                let (document, event) = read(&line).map_err(|error| {
                    Failure::new(Exit::Failed, "what the node says makes no sense")
                        .because(&error)
                        .hint("are the node and this command of the same version?")
                })?;
                match event {
                    Event::Lost(Lost { lost }) => self.lost = lost,
                    Event::Packet(_) if self.left == 0 => {}
                    Event::Packet(packet) => {
                        self.left -= 1;
                        let answer = *packet;
                        return Ok(Some(Said { document, answer }));
                    }
                }
                continue;
            }
            match self.stream.read(&mut piece) {
                Ok(0) if self.ending.is_some() => return Ok(None),
                Ok(0) => {
                    return Err(Failure::new(Exit::NotReachable, "the node has ended")
                        .hint("what it said before is shown"));
                }
                Ok(got) => self.waiting.extend_from_slice(&piece[..got]),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    return Err(Failure::new(
                        Exit::NotReachable,
                        "the node cannot be heard any more",
                    )
                    .because(&error));
                }
            }
        }
    }

    /// Tells the node that it is enough, once; whether the last has been waited for.
    fn is_over(&mut self) -> bool {
        let begin = *self.ending.get_or_insert_with(|| {
            // A node that is gone is noticed by reading.
            let _ = self.stream.shutdown(Shutdown::Write);
            Instant::now()
        });
        begin.elapsed() >= REST
    }

    /// What is said at the end of it, if there is anything.
    pub(super) fn say_lost(&self) {
        if self.lost > 0 {
            say(&format!(
                "{} records lost: the node had more to say than could be written down",
                self.lost
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<Option<String>, Failure> {
        filter(&[text.to_owned()])
    }

    #[test]
    fn a_filter_a_flow_or_the_place_where_it_is_neither() {
        assert_eq!(said("").unwrap(), None);
        assert_eq!(said("udp port 5").unwrap().unwrap(), "udp port 5");
        let flow = said("udp 10.0.0.1:5 > 10.0.0.2:7").unwrap().unwrap();
        assert_eq!(
            flow,
            "ip proto 17 and src host 10.0.0.1 and src port 5 and dst host 10.0.0.2 and dst port 7"
        );
        parse(&flow).unwrap();
        let failure = said("udp dst prot 53").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        let [text, caret] = &failure.because[..] else {
            panic!("{failure:?}");
        };
        assert_eq!(text, "udp dst prot 53");
        assert_eq!(&text[caret.find('^').unwrap()..caret.len()], "prot");
    }
}
