//! A file that takes long to compile, and requests whose answer comes later.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ashway_rig::{Node, Rig};
use serde_json::Value;

use crate::node::PATIENCE;

/// Enough to keep Wasmtime, and then the verifier, busy for about a second; a
/// request takes a millisecond.
const OPERATORS: u32 = 30_000;

/// A handler of so many operators in a row, in a file that goes away with it.
#[derive(Debug)]
pub struct Large(PathBuf);

impl Large {
    /// Writes it.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    #[must_use]
    pub fn new(rig: &Rig) -> Self {
        let mut source = "(module (memory (export \"memory\") 1 1)
            (func (export \"on_rx\") (param i32 i32) (result i32) (local i32 i32)"
            .to_owned();
        for i in 0..OPERATORS / 5 {
            let (to, from) = (2 + i % 2, 3 - i % 2);
            let at = 4 * (i % 1000);
            write!(
                source,
                "local.get 0 i32.load offset={at} local.get {from} i32.add local.set {to} "
            )
            .expect("into a string");
        }
        source += "(i32.store (i32.const 0) (local.get 2)) i32.const 1))";
        let file = std::env::temp_dir().join(format!("{}-large.wasm", rig.name()));
        let module = wat::parse_str(source).expect("it is well-formed");
        std::fs::write(&file, module).expect("a file in the folder of temporary ones");
        Self(file)
    }

    /// One that was written there.
    #[must_use]
    pub const fn of(file: PathBuf) -> Self {
        Self(file)
    }

    /// Where it is.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.0
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A request that was sent and whose answer has not been read.
#[derive(Debug)]
pub struct Asked(UnixStream);

/// Sends a request and does not wait.
///
/// # Panics
///
/// If the node is not there.
#[must_use]
pub fn ask(node: &Node, request: &Value) -> Asked {
    let mut stream = UnixStream::connect(node.socket()).expect("the node is there");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("it is not 0");
    let sent = stream.write_all(format!("{request}\n").as_bytes());
    sent.expect("the node reads it");
    Asked(stream)
}

impl Asked {
    /// Waits for its answer.
    ///
    /// # Panics
    ///
    /// If there is none, in [`PATIENCE`].
    #[must_use]
    pub fn answer(self) -> Value {
        let mut line = String::new();
        let read = BufReader::new(self.0).read_line(&mut line);
        read.expect("an answer in time");
        serde_json::from_str(&line).expect("an answer is JSON")
    }
}
