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
use serde_json::Value;

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
    pub fn request(&mut self, request: impl Into<Request>) -> Result<Value, ControlError> {
        Ok(self.exchange(&request.into())?.0)
    }

    /// Asks for a handler's memory: its description
    /// (`{"kind","address","bytes","symbols"}`) and the descriptor to map.
    ///
    /// # Errors
    ///
    /// [`ControlError`].
    pub fn memory(&mut self, handler: &str) -> Result<(Value, OwnedFd), ControlError> {
        let handler = handler.to_owned();
        let (value, fd) = self.exchange(&Memory { handler }.into())?;
        let fd = fd.ok_or_else(|| ControlError::Malformed("no descriptor came with it".into()))?;
        Ok((value, fd))
    }

    /// Asks for a handler's endpoint, which from then on is this process's until it
    /// ends: where its ring lies in the handler's memory
    /// (`{"slots","slot_bytes","payloads_at","control_at"}`), and the descriptor to
    /// sleep on.
    ///
    /// # Errors
    ///
    /// [`ControlError`].
    pub fn endpoint(&mut self, handler: &str) -> Result<(Value, OwnedFd), ControlError> {
        let handler = handler.to_owned();
        let (value, fd) = self.exchange(&Endpoint { handler }.into())?;
        let fd = fd.ok_or_else(|| ControlError::Malformed("no descriptor came with it".into()))?;
        Ok((value, fd))
    }

    /// Asks to observe: what the node says of itself
    /// (`{"epoch_ns","silent"}`), and the socket that it writes to, a JSON line for each
    /// message. Closing it ends the observation.
    ///
    /// # Errors
    ///
    /// [`ControlError`].
    pub fn observe(&mut self, request: Observe) -> Result<(Value, UnixStream), ControlError> {
        let (value, fd) = self.exchange(&request.into())?;
        let fd = fd.ok_or_else(|| ControlError::Malformed("no descriptor came with it".into()))?;
        Ok((value, UnixStream::from(fd)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Confirm, Status};
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

    #[test]
    fn requests_are_answered_in_turn_and_a_descriptor_arrives() {
        let long = "x".repeat(100_000);
        let socket = node("good", move |line| match line {
            r#"{"request":"status"}"# => json!({ "ok": { "long": long } }).to_string(),
            line if line.contains("memory") => r#"{"ok":{"kind":"arena"}}"#.to_owned(),
            _ => r#"{"error":{"code":"failed","message":"no such path","hint":"ls"}}"#.to_owned(),
        });
        let mut client = Client::connect(&socket).unwrap();
        let status = client.request(Status {}).unwrap();
        assert_eq!(status["long"].as_str().unwrap().len(), 100_000);
        let (memory, fd) = client.memory("counter").unwrap();
        assert_eq!(memory["kind"], "arena");
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
        let error = client.request(Status {}).unwrap_err();
        assert!(matches!(error, ControlError::Malformed(_)));
        std::fs::remove_file(&socket).unwrap();
        assert!(Client::connect(&socket).is_err());
    }
}
