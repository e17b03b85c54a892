//! The ordinary way: a UDP server on the kernel's own sockets.
//!
//! Written plainly, as most would write it, and run as a process of its own (the
//! binary `ashway-peer-socket`), so that a request wakes a process as it does in
//! practice.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ashway_rig::Process;

/// The program's name.
const PROGRAM: &str = "ashway-peer-socket";

/// What the server does between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Sleeps in recv(2).
    Sleeping,
    /// Asks the socket again and again, on a CPU of its own.
    Spinning,
}

impl Waiting {
    /// The command-line word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sleeping => "sleeping",
            Self::Spinning => "spinning",
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Adds the 32-bit number of each request to a counter and replies with the sum,
/// for ever. Messages too short for a number are ignored.
///
/// # Errors
///
/// What the socket calls said.
pub fn serve(socket: &UdpSocket, waiting: Waiting) -> io::Result<()> {
    socket.set_nonblocking(waiting == Waiting::Spinning)?;
    let mut counter = 0_u32;
    let mut message = [0; 2048];
    loop {
        let (len, from) = match socket.recv_from(&mut message) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::hint::spin_loop();
                continue;
            }
            // An earlier reply met nobody; the next client does not mind.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        };
        let Some((number, _)) = message[..len].split_first_chunk_mut() else {
            continue;
        };
        counter = counter.wrapping_add(u32::from_be_bytes(*number));
        *number = counter.to_be_bytes();
        match socket.send_to(&message[..len], from) {
            Ok(_) => {}
            // The reply is lost, as a datagram may be.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
}

/// The program: `ashway-peer-socket PORT sleeping|spinning`. Prints `ready`.
///
/// # Errors
///
/// Wrong arguments, or what the socket calls said.
pub fn main(args: &[String]) -> Result<()> {
    let [port, waiting] = args else {
        bail!("usage: {PROGRAM} PORT sleeping|spinning");
    };
    let waiting = match waiting.as_str() {
        "sleeping" => Waiting::Sleeping,
        "spinning" => Waiting::Spinning,
        other => bail!("`{other}` is neither `sleeping` nor `spinning`"),
    };
    let port: u16 = port
        .parse()
        .with_context(|| format!("`{port}` is no port"))?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
        .with_context(|| format!("cannot listen on port {port}"))?;
    println!("ready");
    Ok(serve(&socket, waiting)?)
}

/// A running server process; killed on drop.
#[derive(Debug)]
pub struct SocketServer {
    _process: Process,
}

impl SocketServer {
    /// Starts it with a command from `command`, which says where programs run
    /// (for instance `|program| rig.command_b(program)`), and waits until it
    /// listens.
    ///
    /// # Errors
    ///
    /// If the program is not built or does not start.
    pub fn start(
        command: impl FnOnce(&str) -> Command,
        port: u16,
        waiting: Waiting,
    ) -> Result<Self> {
        let program = program()?;
        let mut command = command(&program.to_string_lossy());
        command.args([&port.to_string(), waiting.name()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::spawn(command).context("cannot start the socket server")?;
        let output = process.child().stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line != "ready\n" {
            bail!("the socket server did not start");
        }
        Ok(Self { _process: process })
    }
}

/// Beside the running program, where cargo puts it too; tests run one folder
/// deeper.
fn program() -> Result<PathBuf> {
    let me = std::env::current_exe().context("which program is this?")?;
    me.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(PROGRAM))
        .find(|path| path.exists())
        .with_context(|| {
            format!(
                "no `{PROGRAM}` beside `{}`; run `cargo build --release`",
                me.display()
            )
        })
}
