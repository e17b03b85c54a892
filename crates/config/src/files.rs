//! Files that somebody has named, opened without waiting for anybody.
//!
//! What lies at a name may change between a look and the opening, and to open a pipe by its
//! name takes as long as its other end likes. So a file is opened first, in a way that waits
//! for nothing, and then looked at by its descriptor. `O_NONBLOCK` stays: a regular file
//! takes no notice of it, but for some of `/proc` that would wait for what to read
//! (`/proc/kmsg`).

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path as FsPath;

use rustix::fs::{Access, Mode, OFlags, access, fchmod, fcntl_getfl, fcntl_setfl};

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

/// Looks whether [`create`] would begin the file, and begins nothing. What lies at the name
/// may be another thing a moment later.
///
/// # Errors
///
/// As [`create`].
pub fn can_create(file: &FsPath) -> io::Result<()> {
    match file.metadata() {
        Ok(found) => {
            takes_messages(found.file_type())?;
            access(file, Access::WRITE_OK)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
            let folder = folder.unwrap_or_else(|| FsPath::new("."));
            access(folder, Access::WRITE_OK)?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
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
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
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
    fn a_look_whether_a_file_can_be_begun_begins_none() {
        let [folder, file, pipe] = folder("look");
        let new = folder.join("new");
        can_create(&file).unwrap();
        can_create(&new).unwrap();
        can_create(FsPath::new("/dev/null")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"x");
        assert!(!new.exists());
        for not in [&pipe, &folder, &folder.join("no folder/new")] {
            assert!(can_create(not).is_err() && create(not).is_err());
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
