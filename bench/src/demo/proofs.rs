//! What a table of times does not show.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_rig::{B4, Process, Signal};

use super::Stage;
use crate::hosts::{self, COUNTER_PORT, RUNAWAY_PORT};
use crate::rtt::{self, Client, Plan};

/// Requests of each proof.
pub(super) const REQUESTS: u32 = 1000;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The application: another process, that maps the counter's memory.
pub(super) struct App {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: Process,
}

impl App {
    /// Starts it through `ashway handler map`.
    pub(super) fn start(stage: &Stage<'_>) -> Result<Self> {
        // A copy, because the other user may not look into this tree.
        let program = stage.folder.join("counter_app");
        let built = ashway_rig::places::application("counter_app")?;
        fs::copy(&built, &program).with_context(|| format!("cannot copy `{}`", built.display()))?;
        let mut command = Command::new(ashway_rig::ashway()?);
        command.args(["handler", "map", "counter", "--socket"]);
        command.arg(stage.contest.control);
        if let Some(uid) = stage.app_uid {
            command.args(["--uid", &uid.to_string()]);
        }
        command.arg("--").arg(&program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(command).context("cannot start the application")?;
        let child = process.child();
        let mut app = Self {
            input: child.stdin.take().context("no input")?,
            output: BufReader::new(child.stdout.take().context("no output")?),
            process,
        };
        app.read()
            .context("the application does not see the counter")?;
        Ok(app)
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The counter as it stands in the application's memory.
    fn read(&mut self) -> Result<u32> {
        self.input.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let number = line.trim();
        number
            .parse()
            .with_context(|| format!("the application said `{number}`"))
    }

    /// Waits until the kernel shows it as stopped, or not.
    fn wait_until(&self, stopped: bool) -> Result<()> {
        let stat = format!("/proc/{}/stat", self.id());
        let begin = Instant::now();
        loop {
            // Its name, in parentheses, may hold anything; the state follows.
            let text = fs::read_to_string(&stat).context("the application has ended")?;
            let state = text
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            if (state == Some('T')) == stopped {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("the application is in state {state:?}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What came of stopping the application.
pub(super) struct Stopped {
    pub(super) answers: u32,
    pub(super) answered: bool,
    pub(super) read: u32,
    pub(super) equal: bool,
}

/// Stops the application, asks, lets it go on and has it read the counter.
/// `due` is the number of increments so far.
pub(super) fn stopped(stage: &Stage<'_>, app: &mut App, due: &mut u32) -> Result<Stopped> {
    app.process.signal(Signal::STOP)?;
    app.wait_until(true)?;
    let increments = ask(stage)?;
    app.wait_until(true)?;
    app.process.signal(Signal::CONT)?;
    app.wait_until(false)?;
    *due = due.wrapping_add(increments);
    let read = app.read()?;
    Ok(Stopped {
        // Those before them warmed the way up.
        answers: increments.min(REQUESTS),
        answered: increments >= REQUESTS,
        read,
        equal: read == *due,
    })
}

/// Some increments; how many were answered.
fn ask(stage: &Stage<'_>) -> Result<u32> {
    let plan = Plan {
        requests: REQUESTS,
        longest: PATIENCE,
        client: Client::Other,
    };
    let socket = stage.hosts().client(COUNTER_PORT)?;
    Ok(rtt::run(&socket, plan)?.increments)
}

/// What came of the handler that loops for ever.
pub(super) struct Runaway {
    pub(super) stopped: bool,
    pub(super) cause: String,
    pub(super) line: String,
    pub(super) answered: bool,
}

/// Sends the message that makes the handler loop, and asks the counter
/// meanwhile.
pub(super) fn runaway(stage: &Stage<'_>, due: &mut u32) -> Result<Runaway> {
    let socket = stage.hosts().client(RUNAWAY_PORT)?;
    socket.send(b"R")?;
    let increments = ask(stage)?;
    *due = due.wrapping_add(increments);
    let begin = Instant::now();
    loop {
        let status = hosts::status(stage.contest.control)?;
        let fault = &hosts::named(&status, "handlers", "runaway")?["last_fault"];
        let stopped = fault["count"].as_u64().is_some_and(|count| count > 0);
        if stopped || begin.elapsed() > PATIENCE {
            let word = |key: &str| fault[key].as_str().unwrap_or("unknown").to_owned();
            return Ok(Runaway {
                stopped,
                cause: word("cause"),
                line: format!("{}:{}", word("file"), fault["line"]),
                answered: increments >= REQUESTS,
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a client said that nobody here wrote.
pub(super) struct Foreign {
    pub(super) command: String,
    pub(super) reply: String,
    pub(super) right: bool,
}

/// Adds 5 with `nc`, or with `socat` where there is no `nc`.
pub(super) fn foreign(stage: &Stage<'_>, due: u32) -> Result<Foreign> {
    let (host, port) = (B4.to_string(), COUNTER_PORT.to_string());
    let nc = ["nc", "-u", "-w1", &host, &port];
    let address = format!("UDP:{host}:{port}");
    let socat = ["socat", "-t1", "-", &address];
    let words: &[&str] = if is_installed("nc") { &nc } else { &socat };
    let mut command = stage.hosts().command_a(words[0]);
    command.args(&words[1..]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = Process::spawn(command)
        .with_context(|| format!("cannot start `{}`; is it installed?", words[0]))?;
    let child = client.child();
    let mut input = child.stdin.take().context("no input")?;
    input.write_all(&5_u32.to_be_bytes())?;
    drop(input);
    let mut reply = Vec::new();
    let output = child.stdout.take().context("no output")?;
    output.take(64).read_to_end(&mut reply)?;
    Ok(Foreign {
        command: words.join(" "),
        reply: reply
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}")),
        right: reply == due.wrapping_add(5).to_be_bytes(),
    })
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}
