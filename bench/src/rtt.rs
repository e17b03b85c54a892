//! The client: remote increments, one after another, each timed and checked.
//!
//! Not pinned to a CPU, because a program that asks for something seldom is: the
//! scheduler may put it beside the server or apart, in every case alike.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use ashway_rig::realtime;

use crate::stats::Times;

/// How long a reply may take. Beside eight busy loops an ordinary server waits
/// tens of ms for a CPU; nothing loses packets on a veth at this rate.
const PATIENCE: Duration = Duration::from_secs(5);

/// Requests before the measured ones, to warm caches and wake the server.
const WARM_UP: u32 = 20;

/// How long a paced client sleeps before each request. A guest's idle CPU polls
/// for 200 us before it halts (`guest_halt_poll_ns`), so it is longer than that.
const PAUSE: Duration = Duration::from_millis(1);

/// How the client competes for the CPU, and how it waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// `SCHED_FIFO`, blocked in recv(2) until the reply comes.
    Fifo,
    /// An ordinary process, blocked likewise: its own scheduling is part of
    /// what it measures.
    Other,
    /// An ordinary process that asks again and again without blocking, so that
    /// no wake-up of its own is in the time.
    Spinning,
    /// As [`Fifo`](Self::Fifo), with a pause of 1 ms before each request: long
    /// enough for a server to fall asleep and for its CPU to halt.
    Paced,
}

impl Client {
    /// The name in tables and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Other => "other",
            Self::Spinning => "spinning",
            Self::Paced => "paced",
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of measured requests.
    pub requests: u32,
    /// Ends the run earlier than that.
    pub longest: Duration,
    /// Who asks.
    pub client: Client,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RttRun {
    /// The measured round trips.
    pub times: Times,
    /// All answered increments, the warm-up's too: by so much the counter rose.
    pub increments: u32,
}

/// Asks the counter behind a connected socket. Every reply must be the sum that
/// is due.
///
/// # Errors
///
/// What the socket calls said, `TimedOut` if a reply did not come, `InvalidData`
/// if it was not the sum; `PermissionDenied` where `SCHED_FIFO` is
/// not allowed.
pub fn run(socket: &UdpSocket, plan: Plan) -> io::Result<RttRun> {
    match plan.client {
        Client::Fifo | Client::Paced => realtime(|| ask(socket, plan))?,
        Client::Other | Client::Spinning => ask(socket, plan),
    }
}

/// The counter as it stands: adding 0 changes nothing.
///
/// # Errors
///
/// As [`run`].
pub fn read_counter(socket: &UdpSocket) -> io::Result<u32> {
    prepare(socket, Client::Other)?;
    exchange(socket, 0, Client::Other)
}

fn ask(socket: &UdpSocket, plan: Plan) -> io::Result<RttRun> {
    prepare(socket, plan.client)?;
    let mut due = exchange(socket, 0, plan.client)?;
    let mut increment = || -> io::Result<()> {
        due = due.wrapping_add(1);
        let sum = exchange(socket, 1, plan.client)?;
        if sum != due {
            let text = format!("the counter says {sum}; {due} is due");
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        Ok(())
    };
    for _ in 0..WARM_UP {
        increment()?;
    }
    let mut times = Times::new();
    let mut done = 0;
    let begin = Instant::now();
    while done < plan.requests && begin.elapsed() < plan.longest {
        if plan.client == Client::Paced {
            std::thread::sleep(PAUSE);
        }
        let sent = Instant::now();
        increment()?;
        times.record(sent.elapsed().as_nanos() as u64);
        done += 1;
    }
    Ok(RttRun {
        times,
        increments: done + WARM_UP,
    })
}

fn prepare(socket: &UdpSocket, client: Client) -> io::Result<()> {
    socket.set_nonblocking(client == Client::Spinning)?;
    socket.set_read_timeout(Some(PATIENCE))
}

fn exchange(socket: &UdpSocket, number: u32, client: Client) -> io::Result<u32> {
    socket.send(&number.to_be_bytes())?;
    // A byte more than expected, to notice replies that are too long.
    let mut reply = [0; 5];
    let received = match client {
        Client::Fifo | Client::Other | Client::Paced => socket.recv(&mut reply),
        Client::Spinning => spin(socket, &mut reply),
    };
    let len = received.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(
            ErrorKind::TimedOut,
            format!("no reply within {} s", PATIENCE.as_secs()),
        ),
        _ => error,
    })?;
    match reply[..len].try_into() {
        Ok(number) => Ok(u32::from_be_bytes(number)),
        Err(_) => Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("a reply of {len} bytes instead of 4"),
        )),
    }
}

fn spin(socket: &UdpSocket, reply: &mut [u8]) -> io::Result<usize> {
    let begin = Instant::now();
    loop {
        match socket.recv(reply) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && begin.elapsed() < PATIENCE => {
                std::hint::spin_loop();
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket_server::{self, Waiting};

    /// A server in a thread; the client's socket, connected to it.
    fn served(waiting: Waiting) -> UdpSocket {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        std::thread::spawn(move || socket_server::serve(&server, waiting));
        client
    }

    fn plan(client: Client) -> Plan {
        Plan {
            requests: 20,
            longest: Duration::from_mins(1),
            client,
        }
    }

    #[test]
    fn each_answered_request_is_in_the_counter() {
        for (waiting, client) in [
            (Waiting::Sleeping, Client::Other),
            (Waiting::Spinning, Client::Spinning),
        ] {
            let socket = served(waiting);
            for runs in 1..=2 {
                let run = run(&socket, plan(client)).unwrap();
                assert_eq!(run.times.summary().n, 20);
                assert_eq!(run.increments, 20 + WARM_UP);
                assert_eq!(read_counter(&socket).unwrap(), runs * run.increments);
            }
        }
    }

    #[test]
    fn a_run_ends_in_time() {
        let socket = served(Waiting::Sleeping);
        let run = run(
            &socket,
            Plan {
                requests: u32::MAX,
                longest: Duration::from_millis(5),
                client: Client::Other,
            },
        );
        assert!(run.unwrap().times.summary().n > 0);
    }

    #[test]
    fn a_wrong_sum_is_an_error() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4];
            while let Ok((_, from)) = server.recv_from(&mut buffer) {
                server.send_to(&[0, 0, 0, 7], from).unwrap();
            }
        });
        let error = run(&client, plan(Client::Other)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}
