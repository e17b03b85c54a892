//! The control socket: how the CLI asks a running node (`client.rs` is the
//! other end).
//!
//! One connection at a time, served between two looks at the node; a client
//! that dawdles is hung up on.

use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path as FsPath, PathBuf};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

/// How long a client may take over its request.
const PATIENCE: Duration = Duration::from_millis(500);

/// Longest request.
const REQUEST_BYTES: u64 = 64 * 1024;

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

/// The listening socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens at `path` with mode 0600. A socket that nobody answers on any
    /// more (its node was killed) is replaced.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if a node answers there; `AlreadyExists` if something else
    /// than a socket is there; else what the file system said.
    pub(crate) fn listen(path: &FsPath) -> io::Result<Self> {
        if let Some(directory) = path.parent()
            && !directory.as_os_str().is_empty()
        {
            std::fs::create_dir_all(directory)?;
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

    /// Serves the clients that wait. `answer` gets the parsed request.
    pub(crate) fn serve(&self, mut answer: impl FnMut(&Value) -> Answer) {
        while let Ok((stream, _)) = self.listener.accept() {
            // A client that went away has lost its answer; nobody else minds.
            let _ = converse(&stream, &mut answer);
        }
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

fn converse(stream: &UnixStream, answer: &mut impl FnMut(&Value) -> Answer) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    let read = BufReader::new(io::Read::take(stream, REQUEST_BYTES)).read_line(&mut line);
    let request = match read {
        Ok(_) if line.ends_with('\n') => serde_json::from_str::<Value>(&line).ok(),
        // Cut off, too long, not text.
        _ => None,
    };
    let answer = match request {
        Some(request) => answer(&request),
        None => Answer::Refused {
            code: "bad_request",
            message: "the request is not one line of JSON".to_owned(),
            hint: "send {\"request\":\"status\"} and a newline".to_owned(),
        },
    };
    match answer {
        Answer::Ok(value) => send(stream, &json!({ "ok": value }), None),
        Answer::WithFd(value, fd) => send(stream, &json!({ "ok": value }), Some(fd.as_fd())),
        Answer::Refused {
            code,
            message,
            hint,
        } => {
            let error = json!({ "code": code, "message": message, "hint": hint });
            send(stream, &json!({ "error": error }), None)
        }
    }
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
