//! A named network namespace, made and removed by `ip netns`.
//!
//! Named ones, because then `ip netns exec` works by hand too when a test is
//! looked at. `ip netns exec` also shows the namespace's own `/sys/class/net`,
//! which a thread that merely called setns(2) does not see.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns` keeps the names.
const NAMES: &str = "/run/netns";

/// What every name and folder of ours begins with.
pub(crate) const PREFIX: &str = "ashway-";

/// A network namespace; removed on drop.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    handle: File,
}

impl Namespace {
    /// Makes a namespace of this name with its loopback up.
    ///
    /// # Errors
    ///
    /// What `ip` said, for instance without `CAP_SYS_ADMIN`.
    pub fn new(name: String) -> Result<Self> {
        ip(&["netns", "add", &name])?;
        let handle = File::open(Path::new(NAMES).join(&name))
            .with_context(|| format!("cannot open the namespace `{name}`"))?;
        let namespace = Self { name, handle };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name for `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` on this namespace.
    pub(crate) fn ip(&self, args: &[&str]) -> Result<()> {
        ip(&[&["-n", self.name.as_str()], args].concat())
    }

    /// Runs `work` in a thread inside this namespace and returns its value.
    ///
    /// Sockets made inside stay inside, wherever they are used later. `/sys` and
    /// `/proc/self/net` still show the caller's namespace.
    ///
    /// # Panics
    ///
    /// If `work` panics, or if the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                use std::os::fd::AsFd;
                move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap_or_else(|why| panic!("cannot enter `{}`: {why}", self.name));
                work()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A command that will run inside this namespace.
    ///
    /// `ip netns exec` replaces itself by the program, so the child's pid is
    /// the program's.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(why) = ip(&["netns", "delete", &self.name]) {
            eprintln!("left behind: {why:#}");
        }
    }
}

/// Removes namespaces and folders of processes that no longer run.
///
/// # Errors
///
/// If a folder that lists them cannot be read; what cannot be removed is left.
pub fn remove_stale() -> io::Result<()> {
    for name in names(Path::new(NAMES))? {
        if maker(&name).is_some_and(is_gone) {
            // Another process may be removing it at the same time.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
    let temp = std::env::temp_dir();
    for name in names(&temp)? {
        if maker(&name).is_some_and(is_gone) {
            let _ = fs::remove_dir_all(temp.join(name));
        }
    }
    Ok(())
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(why),
    };
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect())
}

/// The process in a name such as `ashway-echo-1234-a`.
fn maker(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.rsplit('-');
    parts.next()?;
    let pid = parts.next()?.parse().ok()?;
    parts.next().map(|_| pid)
}

fn is_gone(pid: u32) -> bool {
    !Path::new("/proc").join(pid.to_string()).exists()
}

/// Runs `ip`.
pub(crate) fn ip(args: &[&str]) -> Result<()> {
    run(Command::new("ip").args(args))
}

/// Runs a command to its end; its complaint becomes the error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}; is it installed?"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed: {}", why.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_who_made_them() {
        assert_eq!(maker("ashway-echo-1234-a"), Some(1234));
        assert_eq!(maker("ashway-two-queues-7-b"), Some(7));
        for foreign in ["ashway-7-a", "ashway-x-y-a", "web-1234-a", "ashway-"] {
            assert_eq!(maker(foreign), None, "{foreign}");
        }
    }
}
