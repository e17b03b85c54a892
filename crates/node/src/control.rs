//! The control socket: how the CLI asks a running node (`ashway_api::Client`
//! is the other end).
//!
//! One request for each connection, read between two looks at the node as it comes, and its
//! answer written likewise ([`answers`]); a client that dawdles over either holds up nobody,
//! and is hung up on in the end. The answer may come later: until then the connection is a
//! [`Caller`], and others are served.

mod answers;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path as FsPath, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashway_api::json;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::{PidfdFlags, pidfd_open};
use serde::Serialize;
use serde_json::Value;

use crate::authority::Authority;
use crate::request::{Code, Refusal};
use answers::{Answering, Answers};
use ashway_worker::peer::Peer;

/// How long a client may take over its request. Nobody waits for it meanwhile; on a busy
/// machine it may be off its CPU for a while between two system calls.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most clients whose requests have not come to their end; one more takes the place of the
/// one that has waited longest.
const MOST_ASKING: usize = 64;

/// Longest request.
const REQUEST_BYTES: usize = 64 * 1024;

/// How long the node accepts nobody when it has no descriptor for another client, and none
/// to take one from.
const DEAF: Duration = Duration::from_millis(100);

/// Clients that the kernel holds until they are accepted.
const BACKLOG: i32 = 128;

/// What a node answers.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Done, with this to say.
    Ok(ashway_api::Answer),
    /// Done, with a file descriptor beside it.
    WithFd(ashway_api::Answer, OwnedFd),
    /// Turned down.
    Refused(Refusal),
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<A: Into<ashway_api::Answer>> From<Result<A, Refusal>> for Answer {
    fn from(result: Result<A, Refusal>) -> Self {
        result.map_or_else(Self::from, |answer| Self::Ok(answer.into()))
    }
}

/// What stands in the line of an answer.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Line<'a> {
    Ok(&'a ashway_api::Answer),
    Error(&'a Refusal),
}

/// The listening socket; removed when dropped.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// The one that came first is the first.
    asking: VecDeque<Asking>,
    answers: Answers,
    /// Until when nobody is accepted.
    deaf_until: Option<Instant>,
}

/// A client whose request is not there yet.
#[derive(Debug)]
struct Asking {
    stream: UnixStream,
    line: Vec<u8>,
    until: Instant,
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
    pub fn listen(path: &FsPath) -> io::Result<Self> {
        if let Some(directory) = path.parent()
            && !directory.as_os_str().is_empty()
            && !directory.is_dir()
        {
            // Where anybody may write, anybody may put a socket in the node's place.
            std::fs::DirBuilder::new().mode(0o755).create(directory)?;
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
        let listener = listener(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            asking: VecDeque::new(),
            answers: Answers::new(),
            deaf_until: None,
        })
    }

    /// What says that there is something for [`Control::next`].
    pub(crate) fn fds(&mut self) -> impl Iterator<Item = PollFd<'_>> {
        self.answers.collect();
        let listener = self.deaf_until.is_none().then(|| self.listener.as_fd());
        let asking = self.asking.iter().map(|client| client.stream.as_fd());
        let readers = listener.into_iter().chain(asking);
        let readers = readers.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let writers = self.answers.fds();
        readers.chain(writers.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)))
    }

    /// When there is something for [`Control::next`] that no descriptor says: somebody is too
    /// late, or is accepted again.
    pub(crate) fn due(&self) -> Option<Instant> {
        let asking = self.asking.iter().map(|client| client.until);
        let times = asking.chain(self.deaf_until).chain(self.answers.due());
        times.min()
    }

    /// The request of a client, if one has come to its end; the oldest client first.
    /// Waits for nobody. One that makes no sense has been answered.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(Caller, Value)> {
        self.answers.push(now);
        if self.deaf_until.is_some_and(|until| now < until) {
            return self.complete(now);
        }
        self.deaf_until = None;
        loop {
            let has_room = self.accept(now);
            if let Some(request) = self.complete(now) {
                return Some(request);
            }
            if has_room || !self.has_caller() {
                return None;
            }
            // No request is complete: the oldest makes room for whoever waits.
            let Some(Asking { stream, .. }) = self.asking.pop_front() else {
                self.deaf_until = Some(now + DEAF);
                return None;
            };
            let refusal = no_line(&io::ErrorKind::TimedOut.into());
            self.caller(stream).answer(refusal);
        }
    }

    /// Whether a client waits to be accepted.
    fn has_caller(&self) -> bool {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Accepts who waits. Whether there is room for more: not if too many ask, or if no
    /// descriptor is left, which the kernel says even when nobody waits.
    fn accept(&mut self, now: Instant) -> bool {
        while self.asking.len() < MOST_ASKING {
            match self.listener.accept() {
                Ok((stream, _)) => self.hear(stream, now),
                Err(error) => {
                    let kind = error.kind();
                    return matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
                }
            }
        }
        false
    }

    /// Has a client's request read from now on.
    fn hear(&mut self, stream: UnixStream, now: Instant) {
        // Else it is told that it is late.
        let _ = stream.set_nonblocking(true);
        self.asking.push_back(Asking {
            stream,
            line: Vec::new(),
            until: now + PATIENCE,
        });
    }

    /// Reads what has come of all requests, up to the first that is complete.
    fn complete(&mut self, now: Instant) -> Option<(Caller, Value)> {
        let mut at = 0;
        while let Some(client) = self.asking.get_mut(at) {
            let line = match client.read() {
                Ok(false) if now < client.until => {
                    at += 1;
                    continue;
                }
                Ok(false) => Err(io::ErrorKind::TimedOut.into()),
                Ok(true) => Ok(std::mem::take(&mut client.line)),
                Err(error) => Err(error),
            };
            let stream = self.asking.remove(at)?.stream;
            let request = line
                .map_err(|error| no_line(&error))
                .and_then(|line| json::parse(&line).map_err(|error| no_json(&error)));
            let caller = self.caller(stream);
            match request {
                Ok(request) => return Some((caller, request)),
                Err(refusal) => caller.answer(refusal),
            }
        }
        None
    }

    fn caller(&self, stream: UnixStream) -> Caller {
        let peer = socket_peercred(&stream).ok();
        let pid = peer.and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok());
        Caller {
            authority: Authority::Process(pid),
            stream: Some(stream),
            queue: self.answers.queue(),
            part: None,
        }
    }
}

/// Why a client's line did not come to its end.
fn no_line(error: &io::Error) -> Refusal {
    let (message, hint) = match error.kind() {
        io::ErrorKind::FileTooLarge => (
            format!("the request has more than {REQUEST_BYTES} bytes"),
            "names and filters are short, and a file is named, not sent",
        ),
        _ => (
            "the request did not come to its end in time".to_owned(),
            "send {\"request\":\"status\"} and a newline at once",
        ),
    };
    Refusal::new(Code::BadRequest, message, hint)
}

/// Why a client's line cannot be read.
fn no_json(error: &serde_json::Error) -> Refusal {
    if error.is_data() {
        let message = format!("in the request {error}");
        return Refusal::usage(message, "give each key once");
    }
    let message = format!("the request is not one line of JSON: {error}");
    let hint = "send {\"request\":\"status\"} and a newline";
    Refusal::new(Code::BadRequest, message, hint)
}

/// Listens at `path`, which nobody but the owner can connect to from the first moment:
/// the kernel makes the file with the mode that the socket has when it is bound
/// (`unix_bind_bsd` of `net/unix/af_unix.c`). To set the mode afterwards leaves a window in
/// which the umask decides, and to change the umask meanwhile is the whole process's.
fn listener(path: &FsPath) -> io::Result<UnixListener> {
    let socket = bound(path)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// A socket that has its path, and its mode, before anybody can connect.
fn bound(path: &FsPath) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

impl Asking {
    /// Reads what has come; whether that is all, up to a newline.
    fn read(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        while self.line.last() != Some(&b'\n') {
            if self.line.len() > REQUEST_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.line.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
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
pub(crate) struct Caller {
    /// Absent once it was answered.
    stream: Option<UnixStream>,
    /// On whose behalf the request is: of the process that could connect.
    pub(crate) authority: Authority,
    /// Where what it does not take at once goes.
    queue: Sender<Answering>,
    /// If it is one of several who wait for parts of one answer: who waits for that.
    part: Option<Part>,
}

/// One of several parts of an answer.
#[derive(Debug)]
struct Part {
    number: usize,
    of: Arc<Mutex<Parts>>,
}

/// An answer in parts, each by its number as it comes.
struct Parts {
    answers: BTreeMap<usize, Answer>,
    count: usize,
    /// Who gets them as one, until then.
    whole: Option<Caller>,
    join: fn(Vec<Answer>) -> Answer,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let come = self.answers.len();
        write!(f, "{come} of {} parts for {:?}", self.count, self.whole)
    }
}

impl Caller {
    /// Who asks.
    ///
    /// # Errors
    ///
    /// What the kernel said; `NotFound` for a process of another PID namespace, or
    /// one that has hung up.
    pub(crate) fn peer(&self) -> io::Result<Peer> {
        let stream = self.stream.as_ref().ok_or(io::ErrorKind::NotFound)?;
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

    /// So many callers whose answers are one, which `join` makes of them when all have come.
    /// None of them is a process: they ask for what belongs to nobody.
    pub(crate) fn split(self, count: usize, join: fn(Vec<Answer>) -> Answer) -> Vec<Self> {
        let (authority, queue) = (self.authority.clone(), self.queue.clone());
        let parts = Arc::new(Mutex::new(Parts {
            answers: BTreeMap::new(),
            count,
            whole: Some(self),
            join,
        }));
        let part = |number| Self {
            stream: None,
            authority: authority.clone(),
            queue: queue.clone(),
            part: Some(Part {
                number,
                of: Arc::clone(&parts),
            }),
        };
        (0..count).map(part).collect()
    }

    /// Answers, and hangs up when the client has taken the answer. Does not wait.
    pub(crate) fn answer(mut self, answer: impl Into<Answer>) {
        self.send(answer.into());
    }

    fn send(&mut self, answer: Answer) {
        if let Some(Part { number, of }) = self.part.take() {
            // It is whole between any two statements.
            let mut parts = of.lock().unwrap_or_else(PoisonError::into_inner);
            parts.answers.insert(number, answer);
            if parts.answers.len() == parts.count
                && let Some(whole) = parts.whole.take()
            {
                let answers = std::mem::take(&mut parts.answers);
                whole.answer((parts.join)(answers.into_values().collect()));
            }
            return;
        }
        let Some(stream) = self.stream.take() else {
            return;
        };
        let line = match &answer {
            Answer::Ok(answer) | Answer::WithFd(answer, _) => Line::Ok(answer),
            Answer::Refused(refusal) => Line::Error(refusal),
        };
        let mut line = serde_json::to_vec(&line).expect("its keys are texts");
        line.push(b'\n');
        let fd = match answer {
            Answer::WithFd(_, fd) => Some(fd),
            Answer::Ok(_) | Answer::Refused(_) => None,
        };
        let mut answering = Answering::new(stream, line, fd, Instant::now());
        // A client that went away has lost its answer; nobody else minds.
        if let Ok(false) = answering.push() {
            // A node that ends writes no further.
            let _ = self.queue.send(answering);
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.send(Answer::Refused(Refusal::failed(
            "the node ended or failed before this was done",
            "its standard error says why; please report a panic",
        )));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::fs::PermissionsExt as _;

    use ashway_api::answer::Unloaded;

    use super::*;

    const STATUS: &[u8] = b"{\"request\":\"status\"}\n";

    fn control(name: &str) -> Control {
        let name = format!("ashway-control-{}-{name}", std::process::id());
        Control::listen(&std::env::temp_dir().join(name)).unwrap()
    }

    fn ask(control: &Control, bytes: &[u8]) -> UnixStream {
        let mut client = UnixStream::connect(&control.path).unwrap();
        client.write_all(bytes).unwrap();
        client
    }

    fn answer(client: UnixStream) -> String {
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        line
    }

    /// An answer that says this.
    fn said(text: &str) -> Answer {
        let unloaded = Unloaded {
            handler: text.to_owned(),
            took_us: 1,
        };
        Answer::Ok(unloaded.into())
    }

    /// The line of that answer.
    fn line(text: &str) -> String {
        format!("{{\"ok\":{{\"handler\":\"{text}\",\"took_us\":1}}}}\n")
    }

    /// A client that begins and does not go on holds up nobody, may go on later, and is
    /// told when it is too late.
    #[test]
    fn a_slow_client_is_waited_for_and_nobody_waits_with_it() {
        let mut control = control("slow");
        let now = Instant::now();
        let mut slow = ask(&control, &STATUS[..7]);
        let never = ask(&control, b"");
        assert!(control.next(now).is_none());
        let quick = ask(&control, STATUS);
        let (caller, request) = control.next(now).unwrap();
        assert_eq!(request["request"], "status");
        caller.answer(said("quick"));
        assert_eq!(answer(quick), line("quick"));
        slow.write_all(&STATUS[7..]).unwrap();
        let late = now + PATIENCE;
        let (caller, request) = control.next(late).unwrap();
        assert_eq!(request["request"], "status");
        caller.answer(said("slow"));
        assert_eq!(answer(slow), line("slow"));
        assert!(control.next(late).is_none());
        assert!(answer(never).contains("did not come to its end"));
        assert_eq!(control.fds().count(), 1);
    }

    #[test]
    fn what_makes_no_sense_is_answered_and_the_next_one_heard() {
        let mut control = control("nonsense");
        let long = vec![b'a'; REQUEST_BYTES + 2];
        let clients = [&b"{\n"[..], b"\xff\n", &long].map(|bytes| ask(&control, bytes));
        let gone = ask(&control, b"{");
        drop(gone);
        let last = ask(&control, STATUS);
        let (caller, _) = control.next(Instant::now()).unwrap();
        caller.answer(said("last"));
        assert_eq!(answer(last), line("last"));
        let answers = clients.map(answer);
        assert!(answers[0].contains("not one line of JSON"), "{answers:?}");
        assert!(answers[1].contains("not one line of JSON"), "{answers:?}");
        assert!(answers[2].contains("more than 65536 bytes"), "{answers:?}");
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_by_name() {
        let mut control = control("twice");
        let client = ask(
            &control,
            b"{\"request\":\"status\",\"request\":\"status\"}\n",
        );
        assert!(control.next(Instant::now()).is_none());
        let said = answer(client);
        assert!(said.contains("key `request` is there twice"), "{said}");
        assert!(said.contains("\"usage\""), "{said}");
    }

    /// More than a socket holds.
    const LONG: usize = 4 << 20;

    /// Serves as the node's loop does, until `client` has read a line to its end.
    fn serve(control: &mut Control, client: UnixStream) -> String {
        let reader = std::thread::spawn(|| answer(client));
        while !reader.is_finished() {
            let mut fds: Vec<_> = control.fds().collect();
            let tick = Timespec {
                tv_sec: 0,
                tv_nsec: 1_000_000,
            };
            poll(&mut fds, Some(&tick)).unwrap();
            drop(fds);
            assert!(control.next(Instant::now()).is_none());
        }
        reader.join().unwrap()
    }

    /// Asks, and has the node answer with this many bytes.
    fn told(control: &mut Control, bytes: usize) -> UnixStream {
        let client = ask(control, STATUS);
        let (caller, _) = control.next(Instant::now()).unwrap();
        caller.answer(said(&"x".repeat(bytes)));
        client
    }

    /// A long answer is written as its client takes it, and others are served meanwhile.
    #[test]
    fn a_client_that_does_not_take_its_answer_holds_up_nobody() {
        let mut control = control("lazy");
        let lazy = told(&mut control, LONG);
        let quick = told(&mut control, 5);
        assert_eq!(answer(quick), line("xxxxx"));
        assert_eq!(serve(&mut control, lazy).len(), line("").len() + LONG);
    }

    #[test]
    fn an_answer_that_is_not_taken_in_time_is_cut() {
        let mut control = control("never");
        let never = told(&mut control, LONG);
        assert_eq!(control.fds().count(), 2);
        assert!(control.next(Instant::now() + answers::PATIENCE).is_none());
        assert_eq!(control.fds().count(), 1);
        let got = answer(never);
        assert!(got.len() < LONG && !got.ends_with('\n'));
    }

    #[test]
    fn answers_that_are_not_taken_are_bounded() {
        let mut control = control("hoard");
        let first = told(&mut control, LONG);
        let others: Vec<_> = (0..16).map(|_| told(&mut control, LONG)).collect();
        // 64 MiB are 15 of them, with their brackets.
        assert_eq!(control.fds().count(), 16);
        assert!(answer(first).len() < LONG);
        for client in others.into_iter().skip(1) {
            assert_eq!(serve(&mut control, client).len(), line("").len() + LONG);
        }
        assert_eq!(control.fds().count(), 1);
    }

    /// From the first moment at which anybody can.
    #[test]
    fn nobody_but_the_owner_can_ever_connect() {
        let name = format!("ashway-control-{}-mode", std::process::id());
        let path = std::env::temp_dir().join(name);
        let socket = bound(&path).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let early = UnixStream::connect(&path).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::ConnectionRefused);
        drop(socket);
        std::fs::remove_file(&path).unwrap();

        let listener = listener(&path).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        drop(listener);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn clients_without_a_request_are_bounded() {
        let mut control = control("many");
        let now = Instant::now();
        let first = ask(&control, b"");
        let others: Vec<_> = (0..MOST_ASKING)
            .map(|_| {
                let client = ask(&control, b"");
                assert!(control.next(now).is_none());
                client
            })
            .collect();
        assert_eq!(control.asking.len(), MOST_ASKING);
        assert!(answer(first).contains("did not come to its end"));
        let quick = ask(&control, STATUS);
        assert!(control.next(now).is_some());
        drop((quick, others));
    }

    #[test]
    fn complete_requests_are_answered_however_many_there_are() {
        let mut control = control("crowd");
        let now = Instant::now();
        let clients: Vec<_> = (0..MOST_ASKING + 36)
            .map(|_| ask(&control, STATUS))
            .collect();
        for _ in &clients {
            assert!(control.next(now).is_some());
        }
        assert!(control.next(now).is_none());
    }
}
