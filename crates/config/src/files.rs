//! Files that somebody has named, opened without waiting for anybody.
//!
//! What lies at a name may change between a look and the opening, and to open a pipe by its
//! name takes as long as its other end likes. So a file is opened first, in a way that waits
//! for nothing, and then looked at by its descriptor. `O_NONBLOCK` stays: a regular file
//! takes no notice of it, but for some of `/proc` that would wait for what to read
//! (`/proc/kmsg`).

use std::fs::{File, FileType, Metadata, OpenOptions, remove_file};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path as FsPath, PathBuf};

use rustix::fs::{Mode, OFlags, fchmod, fcntl_getfl, fcntl_setfl};

use crate::bug::{self, Bug};

/// Opens a regular file to read it.
///
/// # Errors
///
/// What it is, or what the kernel said.
pub fn open(file: &FsPath) -> io::Result<File> {
    let opened = without_waiting(OpenOptions::new().read(true)).open(file)?;
    let kind = opened.metadata()?.file_type();
    kind.is_file().then_some(opened).ok_or_else(|| is(kind))
}

/// As [`open`], but what is in `/dev` and `/proc` is taken as it is, for `/dev/stdin` and a
/// shell's `<(...)`: to read such a file may take as long as its writer does.
///
/// # Errors
///
/// As [`open`].
pub fn open_or_pipe(file: &FsPath) -> io::Result<File> {
    if !["/dev", "/proc"].iter().any(|dir| file.starts_with(dir)) {
        return open(file);
    }
    let opened = without_waiting(OpenOptions::new().read(true)).open(file)?;
    fcntl_setfl(&opened, fcntl_getfl(&opened)? - OFlags::NONBLOCK)?;
    Ok(opened)
}

/// Begins a file of messages, which nobody but its owner is to read: mode 0600, also where
/// it was there. A device is taken as it is (`/dev/null`).
///
/// # Errors
///
/// As [`open`].
pub fn create(file: &FsPath) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let opened = without_waiting(&mut options).open(file)?;
    let kind = opened.metadata()?.file_type();
    takes_messages(kind)?;
    if kind.is_file() {
        fchmod(&opened, Mode::RUSR | Mode::WUSR)?;
    }
    Ok(opened)
}

/// A file that is open to be begun. Until [`Claim::begin`] what lies at its name is as it was:
/// a file that was not there is taken away again when the claim is dropped.
#[derive(Debug)]
pub struct Claim {
    // Dropped before the file is closed: until then nobody else gets its inode number.
    made: Option<MadeFile>,
    file: File,
}

impl Claim {
    /// Opens the file, and makes it where there is none: what could speak against
    /// [`Claim::begin`] does so here.
    ///
    /// # Errors
    ///
    /// As [`create`].
    pub fn on(path: &FsPath) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = without_waiting(options.write(true)).mode(0o600);
        let (opened, is_made) = match options.create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Or what lies there is a link to a file that is not there.
                let there = path.metadata().map(|found| found.file_type());
                // `O_CREAT`, also for a file that is there: in a folder that anybody may write
                // the kernel refuses one that another has put there (`fs.protected_regular`).
                let opened = options.create_new(false).create(true).open(path);
                match (opened, there) {
                    // Of a pipe that nobody reads it says that there is no such device.
                    (Err(error), Ok(kind)) if takes_messages(kind).is_ok() => return Err(error),
                    (Err(_), Ok(kind)) => return Err(is(kind)),
                    (opened, there) => (opened?, there.is_err()),
                }
            }
            made => (made?, true),
        };
        let found = opened.metadata()?;
        takes_messages(found.file_type())?;
        if found.is_file() && !is_made {
            // The mode that it has: who may not set it fails here, and not in `begin`.
            opened.set_permissions(found.permissions())?;
        }
        let made = is_made.then(|| MadeFile {
            path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
            id: [found.dev(), found.ino()],
            is_begun: false,
        });
        let file = opened;
        Ok(Self { made, file })
    }

    /// Begins the file, as [`create`] does: it is empty, and for nobody but its owner.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn begin(mut self) -> io::Result<File> {
        if self.file.metadata()?.is_file() {
            fchmod(&self.file, Mode::RUSR | Mode::WUSR)?;
            self.file.set_len(0)?;
        }
        if let Some(made) = &mut self.made {
            made.is_begun = true;
        }
        Ok(self.file)
    }
}

/// A file that a [`Claim`] has made.
#[derive(Debug)]
struct MadeFile {
    path: PathBuf,
    /// Device and inode: another file may get the name.
    id: [u64; 2],
    is_begun: bool,
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        if self.is_begun || bug::is(Bug::MadeStays) {
            return;
        }
        let found = self.path.symlink_metadata();
        // What somebody has written into it meanwhile is not lost.
        let ours = |found: Metadata| [found.dev(), found.ino()] == self.id && found.len() == 0;
        if found.is_ok_and(ours) {
            // Who drops a claim has nobody to tell.
            let _ = remove_file(&self.path);
        }
    }
}

/// A regular file does, and a device.
fn takes_messages(kind: FileType) -> io::Result<()> {
    let takes = kind.is_file() || kind.is_char_device();
    takes.then_some(()).ok_or_else(|| is(kind))
}

fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    options.custom_flags(flags.bits().cast_signed())
}

/// Why what is no regular file is not taken.
fn is(kind: FileType) -> io::Error {
    let what = if kind.is_fifo() {
        "a pipe, and its other end may never come"
    } else if kind.is_dir() {
        "a directory"
    } else {
        "no regular file"
    };
    io::Error::other(format!("it is {what}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, RenameFlags, mknodat, renameat_with};

    use super::*;

    /// A folder with a file and a pipe.
    fn folder(name: &str) -> [PathBuf; 3] {
        let folder = format!("ashway-files-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let [file, pipe] = ["file", "pipe"].map(|name| folder.join(name));
        fs::write(&file, "x").unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        [folder, file, pipe]
    }

    /// Does it on a thread of its own, because it may never end.
    fn ends(what: impl FnOnce() + Send + 'static) -> bool {
        let (done, seen) = channel();
        std::thread::spawn(move || {
            what();
            // Nobody waits any more.
            let _ = done.send(());
        });
        seen.recv_timeout(Duration::from_mins(1)).is_ok()
    }

    #[test]
    fn a_file_that_is_exchanged_for_a_pipe_is_not_waited_for() {
        let [folder, file, pipe] = folder("exchanged");
        let (one, other) = (file.clone(), pipe.clone());
        let (over, exchanges) = channel::<()>();
        let exchanger = std::thread::spawn(move || {
            while exchanges.try_recv().is_err() {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let all = move || {
            for _ in 0..5_000 {
                for opened in [open(&file), create(&file)] {
                    // The pipe has no reader (ENXIO), or is told apart.
                    assert!(opened.is_err() || opened.unwrap().metadata().unwrap().is_file());
                }
            }
        };
        assert!(ends(all), "it waits for the other end of the pipe");
        over.send(()).unwrap();
        exchanger.join().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_regular_file_is_told_apart() {
        let [folder, file, pipe] = folder("kinds");
        assert!(open(&file).is_ok() && open_or_pipe(&file).is_ok());
        for (it, is) in [(&pipe, "it is a pipe"), (&folder, "it is a directory")] {
            for error in [open(it).unwrap_err(), open_or_pipe(it).unwrap_err()] {
                assert!(error.to_string().contains(is), "{error}");
            }
        }
        assert!(open(FsPath::new("/dev/null")).is_err());
        assert!(open_or_pipe(FsPath::new("/dev/null")).is_ok());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_claim_that_is_dropped_leaves_everything_as_it_was() {
        let [folder, file, pipe] = folder("claim");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let [new, link, target] = ["new", "link", "target"].map(|name| folder.join(name));
        symlink(&target, &link).unwrap();
        let as_it_was = || {
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!((fs::read(&file).unwrap(), mode), (b"x".to_vec(), 0o640));
            !new.exists() && !target.exists()
        };
        let claims = || [&file, &new, &link].map(|name| Claim::on(name).unwrap());
        let open = claims();
        assert!(new.exists() && target.exists());
        drop(open);
        assert!(as_it_was());
        bug::with(Bug::MadeStays, || drop(claims()));
        assert!(!as_it_was());
        for made in [&new, &target] {
            remove_file(made).unwrap();
        }

        let [no_pipe, no_folder] = [(&pipe, "a pipe"), (&folder, "a directory")].map(|(it, is)| {
            let refused = Claim::on(it).unwrap_err().to_string();
            assert!(refused.contains(is), "{refused}");
            create(it).is_err()
        });
        assert!(no_pipe && no_folder);
        // With a reader it would open.
        let reader = without_waiting(OpenOptions::new().read(true)).open(&pipe);
        assert!(Claim::on(&pipe).unwrap_err().to_string().contains("a pipe"));
        drop(reader.unwrap());
        assert!(Claim::on(&folder.join("no folder/new")).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_claim_takes_nothing_away_that_is_somebody_elses() {
        let [folder, ..] = folder("others");
        let [new, old] = ["new", "old"].map(|name| folder.join(name));
        // Another file at its name.
        let claim = Claim::on(&new).unwrap();
        fs::rename(&new, &old).unwrap();
        fs::write(&new, "").unwrap();
        drop(claim);
        assert!(new.exists() && old.exists());
        // Its own, with what another has written.
        remove_file(&new).unwrap();
        let claim = Claim::on(&new).unwrap();
        fs::write(&new, "of another").unwrap();
        drop(claim);
        assert_eq!(fs::read(&new).unwrap(), b"of another");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_claim_begins_the_file_that_it_has_open() {
        let [folder, file, _] = folder("begins");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let [new, moved] = ["new", "moved"].map(|name| folder.join(name));
        for name in [&file, &new] {
            let claim = Claim::on(name).unwrap();
            // Whatever lies at the name by now.
            fs::rename(name, &moved).unwrap();
            claim.begin().unwrap().write_all(b"begun").unwrap();
            assert!(!name.exists());
            assert_eq!(fs::read(&moved).unwrap(), b"begun");
            let mode = moved.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        for device in ["/dev/null", "/dev/full"] {
            let mut begun = Claim::on(FsPath::new(device)).unwrap().begin().unwrap();
            assert_eq!(begun.write_all(b"x").is_ok(), device == "/dev/null");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_begun_is_for_nobody_else() {
        let [folder, file, _] = folder("private");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        for name in [file, folder.join("new")] {
            let mode = create(&name).unwrap().metadata().unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
