//! Those who observe: what each asked for, and the line to it.
//!
//! A client gets JSON lines over a socket of its own: one for each message that it
//! asked for, and `{"lost":N}` when some could not be told of. When it is gone the
//! socket says so.

use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ashway_api::answer::Lost;
use ashway_demux::{Filter, Table};
use ashway_wire::Headers;
use serde::Serialize;

use super::message_trace::{MessageTrace, line};
use crate::why::Flow;

/// Bytes that wait for a client that does not read.
const MOST_WAITING: usize = 8 << 20;

/// How long a client that has had enough may take to read the last of it.
const LAST: Duration = Duration::from_millis(100);

/// What a client wants to see.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    pub(crate) iface: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) filter: Option<Table<()>>,
    /// Whether it wants the frames.
    pub(crate) frames: bool,
    /// After how many messages it has had enough.
    pub(crate) count: Option<u64>,
    /// When it came, on the monotonic clock. What is lost of earlier messages is not
    /// in its count, so it hears of none of them.
    pub(crate) since: u64,
}

impl Subscription {
    /// Sets the filter, which is asked of the frame as it came.
    pub(crate) fn filter(&mut self, filter: &Filter) {
        let mut table = Table::default();
        // The first does not conflict with anything.
        let _ = table.insert(filter, ());
        self.filter = Some(table);
    }

    /// Whether it wants this.
    pub(crate) fn wants(&self, trace: &MessageTrace) -> bool {
        let Some(frame) = trace.frame() else {
            return false;
        };
        let by = |iface: &String| {
            let received = trace.received.iter();
            received
                .chain(&trace.sent)
                .any(|frame| frame.iface == *iface)
        };
        frame.at >= self.since
            && self.iface.as_ref().is_none_or(by)
            && (self.path.is_none() || self.path == trace.path)
            && self.filter.as_ref().is_none_or(|table| {
                let headers = Headers::parse(&frame.bytes);
                table.find(&headers, &frame.bytes).is_some()
            })
    }
}

/// Between whom a frame goes, in words.
pub(crate) fn flow(frame: &[u8]) -> Option<String> {
    Flow::of(&Headers::parse(frame)).map(|flow| flow.to_string())
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    wanted: Subscription,
    /// Messages told of.
    told: u64,
    /// Messages that it did not read in time.
    lost: u64,
    /// What everybody had lost when it came.
    lost_before: u64,
    lost_said: u64,
    waiting: Vec<u8>,
    ending: bool,
    gone: bool,
}

impl Client {
    /// A client that reads at the other end of `stream`, while `lost` messages had
    /// been lost already.
    pub(crate) fn new(stream: UnixStream, wanted: Subscription, lost: u64) -> Self {
        let gone = stream.set_nonblocking(true).is_err();
        Self {
            stream,
            wanted,
            told: 0,
            lost: 0,
            lost_before: lost,
            lost_said: 0,
            waiting: Vec::new(),
            ending: false,
            gone,
        }
    }

    /// Tells it, if it wants to know.
    pub(crate) fn tell(&mut self, trace: &MessageTrace) {
        if self.has_enough() || !self.wanted.wants(trace) {
            return;
        }
        if self.waiting.len() > MOST_WAITING {
            self.lost += 1;
            return;
        }
        self.told += 1;
        let line = line(trace, self.told, self.wanted.frames);
        self.put(&line);
    }

    fn has_enough(&self) -> bool {
        self.wanted.count.is_some_and(|count| self.told >= count)
    }

    fn put(&mut self, line: &impl Serialize) {
        // Writing to a vector does not fail, and keys are texts.
        let _ = serde_json::to_writer(&mut self.waiting, line);
        self.waiting.push(b'\n');
    }

    /// Sends what waits, and how many are lost by now; `lost` is everybody's.
    pub(crate) fn flush(&mut self, lost: u64) {
        if self.ending {
            return self.end(lost);
        }
        let lost = lost.saturating_sub(self.lost_before) + self.lost;
        if lost != self.lost_said && self.waiting.len() <= MOST_WAITING {
            self.lost_said = lost;
            self.put(&Lost { lost });
        }
        while !self.waiting.is_empty() && !self.gone {
            match self.stream.write(&self.waiting) {
                Ok(0) => self.gone = true,
                Ok(sent) => {
                    self.waiting.drain(..sent);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
        self.gone |= self.has_enough();
    }

    /// The other end has had enough, or is gone.
    pub(crate) const fn hang_up(&mut self) {
        self.ending = true;
    }

    /// What it has not read by now is lost as well, and it is told how much that is.
    /// Waits for it no longer than [`LAST`]; if it is gone, not at all.
    fn end(&mut self, lost: u64) {
        self.gone = true;
        // The first line may have been sent in part.
        let first = self.waiting.iter().position(|byte| *byte == b'\n');
        let rest = self.waiting.split_off(first.map_or(0, |at| at + 1));
        let untold = rest
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty() && !line.starts_with(b"{\"lost\""))
            .count() as u64;
        let lost = lost.saturating_sub(self.lost_before) + self.lost + untold;
        self.put(&Lost { lost });
        let stream = &mut self.stream;
        let _ = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_write_timeout(Some(LAST)))
            .and_then(|()| stream.write_all(&self.waiting));
    }

    /// Whether nobody reads any more.
    pub(crate) const fn is_gone(&self) -> bool {
        self.gone
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::message_trace::Frame;

    /// It could not know what is missing of them.
    #[test]
    fn a_client_hears_of_no_message_from_before_it_came() {
        let wanted = Subscription {
            since: 100,
            ..Subscription::default()
        };
        for (at, hears) in [(99, false), (100, true)] {
            let mut trace = MessageTrace::default();
            trace.received = Some(Frame {
                at,
                iface: "b0".to_owned(),
                len: 0,
                bytes: Vec::new(),
            });
            assert_eq!(wanted.wants(&trace), hears, "{at}");
        }
    }
}
