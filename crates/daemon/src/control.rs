//! The control socket: how the CLI asks a running node (`client.rs` is the
//! other end).
//!
//! One request for each connection, read between two looks at the node; a client
//! that dawdles over it is hung up on. The answer may come later: until then the
//! connection is a [`Caller`], and others are served.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path as FsPath, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use crate::request::Refusal;

/// How long a client may take over its request.
const PATIENCE: Duration = Duration::from_millis(100);

/// Longest request.
const REQUEST_BYTES: usize = 64 * 1024;

/// What a node answers.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Done, with this to say.
    Ok(Value),
    /// Done, with a file descriptor beside it.
    WithFd(Value, OwnedFd),
    /// Turned down.
    Refused {
        /// A stable name.
        code: &'static str,
        /// Why.
        message: String,
        /// The next step; may be empty.
        hint: String,
    },
}

impl From<Result<Value, Refusal>> for Answer {
    fn from(result: Result<Value, Refusal>) -> Self {
        match result {
            Ok(document) => Self::Ok(document),
            Err(Refusal {
                code,
                message,
                hint,
            }) => Self::Refused {
                code,
                message,
                hint,
            },
        }
    }
}

/// The process at the other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its number.
    pub(crate) pid: u32,
    /// The process itself: ready for reading when it has ended.
    pub(crate) pidfd: OwnedFd,
}

impl Peer {
    /// The process with this number, in the node's PID namespace.
    ///
    /// # Errors
    ///
    /// What the kernel said: `NotFound` (ESRCH) if there is none.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(rustix::io::Errno::SRCH)?;
        let pidfd = pidfd_open(number, PidfdFlags::empty())?;
        Ok(Self { pid, pidfd })
    }
}

/// The listening socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens at `path` with mode 0600. A socket that nobody answers on any
    /// more (its node was killed) is replaced. Of the folders on the way only
    /// the last is made, if it is not there.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if a node answers there; `AlreadyExists` if something else
    /// than a socket is there; else what the file system said.
    pub(crate) fn listen(path: &FsPath) -> io::Result<Self> {
        if let Some(directory) = path.parent()
            && !directory.as_os_str().is_empty()
            && !directory.is_dir()
        {
            std::fs::create_dir(directory)?;
        }
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("another node answers on {}", path.display()),
            ));
        }
        match std::fs::symlink_metadata(path) {
            // Left behind by a node that was killed.
            Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("{} is there and is no socket", path.display()),
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// The request of the client that has waited longest, if any; reads within
    /// [`PATIENCE`]. One that makes no sense has been answered.
    pub(crate) fn accept(&self) -> Option<(Caller, Value)> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(false).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        let line = read_line(&stream, Instant::now() + PATIENCE);
        let caller = Caller(Some(stream));
        let (message, hint) = match line {
            Ok(line) => match serde_json::from_slice::<Value>(&line) {
                Ok(request) => return Some((caller, request)),
                Err(error) => (
                    format!("the request is not one line of JSON: {error}"),
                    "send {\"request\":\"status\"} and a newline",
                ),
            },
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => (
                format!("the request has more than {REQUEST_BYTES} bytes"),
                "names and filters are short, and a file is named, not sent",
            ),
            Err(_) => (
                "the request did not come to its end in time".to_owned(),
                "send {\"request\":\"status\"} and a newline at once",
            ),
        };
        caller.answer(Answer::Refused {
            code: "bad_request",
            message,
            hint: hint.to_owned(),
        });
        None
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Gone already: then it is as it should be.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A client that waits for its answer. One that is dropped unanswered is told
/// so.
#[derive(Debug)]
pub(crate) struct Caller(Option<UnixStream>);

impl Caller {
    /// Who asks.
    ///
    /// # Errors
    ///
    /// What the kernel said; `NotFound` for a process of another PID namespace, or
    /// one that has hung up.
    pub(crate) fn peer(&self) -> io::Result<Peer> {
        let stream = self.0.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let pid = socket_peercred(stream)?.pid;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        // As long as it has not hung up, the number was not another's by then.
        let mut fds = [PollFd::new(stream, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default()))?;
        if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Peer {
            pid: pid.as_raw_nonzero().get().unsigned_abs(),
            pidfd,
        })
    }

    /// Answers, and hangs up.
    pub(crate) fn answer(mut self, answer: impl Into<Answer>) {
        self.send(answer.into());
    }

    fn send(&mut self, answer: Answer) {
        let Some(stream) = self.0.take() else {
            return;
        };
        // A client that went away has lost its answer; nobody else minds.
        let _ = match answer {
            Answer::Ok(value) => send(&stream, &json!({ "ok": value }), None),
            Answer::WithFd(value, fd) => send(&stream, &json!({ "ok": value }), Some(fd.as_fd())),
            Answer::Refused {
                code,
                message,
                hint,
            } => {
                let error = json!({ "code": code, "message": message, "hint": hint });
                send(&stream, &json!({ "error": error }), None)
            }
        };
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.send(Answer::Refused {
            code: "failed",
            message: "the node ended or failed before this was done".to_owned(),
            hint: "its standard error says why; please report a panic".to_owned(),
        });
    }
}

/// Everything up to a newline. One deadline for all of it: a client that sends
/// byte by byte holds the node no longer than one that sends nothing.
fn read_line(mut stream: &UnixStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut piece = [0; 4096];
    while line.last() != Some(&b'\n') {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if line.len() > REQUEST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&piece[..read]);
    }
    Ok(line)
}

fn send(mut stream: &UnixStream, document: &Value, fd: Option<BorrowedFd>) -> io::Result<()> {
    let line = format!("{document}\n");
    let bytes = line.as_bytes();
    let mut sent = 0;
    if let Some(fd) = fd {
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        sent = sendmsg(
            stream,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
    }
    stream.write_all(&bytes[sent..])
}
