//! How another process asks a running node: one JSON line there, one back.
//!
//! ```text
//! {"request":"promote","path":"inc"}       {"ok":{…}}
//!                                          {"error":{"code":…,"message":…,"hint":…}}
//! ```
//!
//! `docs/guide/control.md` has every request with its keys. With `memory`, `endpoint` and
//! `observe` a file descriptor comes beside the answer.
//!
//! The socket belongs to the node's user (mode 0600): who can connect may ask.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path as FsPath, PathBuf};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::{Ask, EndpointPlace, HandlerMemory, Observing};
use crate::refusal::Refusal;
use crate::request::{Endpoint, Memory, Observe, Request};

/// How long a node may take to answer. Most requests take less than a
/// millisecond; a hostile file can keep compilers and the verifier busy for
/// seconds, and files wait for each other.
const PATIENCE: Duration = Duration::from_mins(1);

/// Longest answer: the status of some ten thousand paths.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Where the node of this name listens: `/run/ashway/NAME.sock` for root, else
/// below `$XDG_RUNTIME_DIR`.
#[must_use]
pub fn default_socket(node: &str) -> PathBuf {
    let uid = rustix::process::geteuid();
    let directory = if uid.is_root() {
        PathBuf::from("/run")
    } else {
        std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
            || PathBuf::from(format!("/run/user/{}", uid.as_raw())),
            PathBuf::from,
        )
    };
    directory.join("ashway").join(format!("{node}.sock"))
}

/// No node listens there.
#[derive(Debug, thiserror::Error)]
#[error("no node answers on {}", socket.display())]
pub struct NotReachable {
    /// The socket that was tried.
    pub socket: PathBuf,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The node turned it down.
    #[error(transparent)]
    Refused(Refusal),
    /// The connection broke, or the node did not answer in time.
    #[error("the node did not answer")]
    Broken(#[from] io::Error),
    /// The answer is none.
    #[error("the node's answer makes no sense: {0}")]
    Malformed(String),
}

/// An answer, as it came and as it was read.
#[derive(Clone, Debug)]
pub struct Said<A> {
    /// All of it, with keys that only a newer node knows: to be passed on.
    pub document: Value,
    /// What this client knows of it.
    pub answer: A,
}

/// A connection to a node.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// Bytes after the last answer.
    rest: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// [`NotReachable`] if the socket is missing, closed, or not ours.
    pub fn connect(socket: &FsPath) -> Result<Self, NotReachable> {
        UnixStream::connect(socket)
            .and_then(|stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Self {
                    stream,
                    rest: Vec::new(),
                })
            })
            .map_err(|source| NotReachable {
                socket: socket.to_owned(),
                source,
            })
    }

    /// Sends a request and waits for what stands under `ok` in the answer.
    ///
    /// # Errors
    ///
    /// [`ControlError`].
    pub fn request<R: Ask>(&mut self, request: R) -> Result<Said<R::Answer>, ControlError> {
        let document = self.exchange(&request.into())?.0;
        let answer = read(&document)?;
        Ok(Said { document, answer })
    }

    /// Asks for a handler's memory: what it is, and the descriptor to map.
    ///
    /// # Errors
    ///
    /// [`ControlError`].
    pub fn memory(&mut self, handler: &str) -> Result<(HandlerMemory, OwnedFd), ControlError> {
        let handler = handler.to_owned();
        self.request_with_fd(Memory { handler })
    }

    /// Asks for a handler's endpoint, which from then on is this process's until it
    /// ends: where its ring lies in the handler's memory, and the descriptor to sleep on.
    ///
    /// # Errors
    ///
    /// [`ControlError`].
    pub fn endpoint(&mut self, handler: &str) -> Result<(EndpointPlace, OwnedFd), ControlError> {
        let handler = handler.to_owned();
        self.request_with_fd(Endpoint { handler })
    }

    /// Asks to observe: what the node says of itself, and the socket that it writes to, a
    /// line for each [`Event`](crate::answer::Event). Closing it ends the observation.
    ///
    /// # Errors
    ///
    /// [`ControlError`].
    pub fn observe(&mut self, request: Observe) -> Result<(Observing, UnixStream), ControlError> {
        let (answer, fd) = self.request_with_fd(request)?;
        Ok((answer, UnixStream::from(fd)))
    }

    fn request_with_fd<R: Ask>(
        &mut self,
        request: R,
    ) -> Result<(R::Answer, OwnedFd), ControlError> {
        let (document, fd) = self.exchange(&request.into())?;
        let fd = fd.ok_or_else(|| ControlError::Malformed("no descriptor came with it".into()))?;
        Ok((read(&document)?, fd))
    }

    fn exchange(&mut self, request: &Request) -> Result<(Value, Option<OwnedFd>), ControlError> {
        let mut line = serde_json::to_vec(request).expect("its keys are texts");
        line.push(b'\n');
        let written = self.stream.write_all(&line);
        // A node that has heard enough says so, and reads no further.
        let (line, fd) = match (self.line(), written) {
            (Ok(answer), _) => answer,
            (Err(_), Err(error)) => return Err(error.into()),
            (Err(error), Ok(())) => return Err(error),
        };
        let mut answer: Value = serde_json::from_slice(&line)
            .map_err(|error| ControlError::Malformed(error.to_string()))?;
        if let Some(value) = answer.get_mut("ok") {
            return Ok((value.take(), fd));
        }
        let Some(error) = answer.get_mut("error") else {
            return Err(ControlError::Malformed("neither `ok` nor `error`".into()));
        };
        Err(match serde_json::from_value(error.take()) {
            Ok(refusal) => ControlError::Refused(refusal),
            Err(error) => ControlError::Malformed(error.to_string()),
        })
    }

    /// The next line, and the first descriptor that came on the way.
    fn line(&mut self) -> Result<(Vec<u8>, Option<OwnedFd>), ControlError> {
        let mut line = std::mem::take(&mut self.rest);
        let mut fd = None;
        let mut seen = 0;
        loop {
            if let Some(end) = line[seen..].iter().position(|byte| *byte == b'\n') {
                self.rest = line.split_off(seen + end + 1);
                return Ok((line, fd));
            }
            seen = line.len();
            if seen > MAX_ANSWER_BYTES {
                return Err(ControlError::Malformed("it does not end".into()));
            }
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut chunk = [0; 16384];
            let got = rustix::io::retry_on_intr(|| {
                rustix::net::recvmsg(
                    &self.stream,
                    &mut [IoSliceMut::new(&mut chunk)],
                    &mut control,
                    RecvFlags::CMSG_CLOEXEC,
                )
            })
            .map_err(io::Error::from)?;
            if got.bytes == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    // The rest of the iterator closes what is too much.
                    fd = fd.or_else(|| descriptors.into_iter().next());
                }
            }
            line.extend_from_slice(&chunk[..got.bytes]);
        }
    }
}

/// Reads an answer; passes over keys that are not known.
fn read<A: DeserializeOwned>(document: &Value) -> Result<A, ControlError> {
    A::deserialize(document).map_err(|error| ControlError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Confirm, Log};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::fs::File;
    use std::io::{BufRead, BufReader, IoSlice, Read};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    /// A node of one connection that answers what `answer` says.
    fn node(name: &str, answer: impl Fn(&str) -> String + Send + 'static) -> PathBuf {
        let name = format!("ashway-{name}-{}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                let text = answer(&line) + "\n";
                if line.contains("memory") {
                    let file = File::open("/proc/self/comm").unwrap();
                    let descriptors = [file.as_fd()];
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                    let mut control = SendAncillaryBuffer::new(&mut space);
                    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
                    let bytes = [IoSlice::new(text.as_bytes())];
                    let flags = SendFlags::empty();
                    rustix::net::sendmsg(&stream, &bytes, &mut control, flags).unwrap();
                } else {
                    stream.write_all(text.as_bytes()).unwrap();
                }
            }
        });
        socket
    }

    fn lines(text: &str) -> Value {
        json!({
            "handler": "h", "last": 1, "overwritten": 0, "too_many": 0,
            "lines": [{ "number": 1, "at_ns": 5, "path": null, "text": text, "newer": true }],
        })
    }

    #[test]
    fn requests_are_answered_in_turn_and_a_descriptor_arrives() {
        let long = lines(&"x".repeat(100_000));
        let socket = node("good", move |line| match line {
            r#"{"request":"log","handler":"h"}"# => json!({ "ok": long }).to_string(),
            line if line.contains("memory") => {
                r#"{"ok":{"kind":"arena","address":"0x0","bytes":1,"symbols":{}}}"#.to_owned()
            }
            _ => r#"{"error":{"code":"failed","message":"no such path","hint":"ls"}}"#.to_owned(),
        });
        let mut client = Client::connect(&socket).unwrap();
        let (handler, after) = ("h".to_owned(), None);
        let said = client.request(Log { handler, after }).unwrap();
        assert_eq!(said.answer.lines[0].text.len(), 100_000);
        // What only a newer node knows is passed on.
        assert_eq!(said.document["lines"][0]["newer"], true);
        let (memory, fd) = client.memory("counter").unwrap();
        assert_eq!(memory.kind, "arena");
        let mut text = String::new();
        File::from(fd).read_to_string(&mut text).unwrap();
        assert!(!text.is_empty());
        let error = client.request(Confirm {}).unwrap_err();
        assert!(
            matches!(error, ControlError::Refused(refusal) if refusal.message == "no such path")
        );
        std::fs::remove_file(socket).unwrap();
    }

    #[test]
    fn nonsense_and_silence_are_errors() {
        let socket = node("bad", |_| "{}".to_owned());
        let mut client = Client::connect(&socket).unwrap();
        let error = client.request(Confirm {}).unwrap_err();
        assert!(matches!(error, ControlError::Malformed(_)));
        std::fs::remove_file(&socket).unwrap();
        assert!(Client::connect(&socket).is_err());
    }
}
