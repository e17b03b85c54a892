//! What a section says of an interface that the node makes itself.

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path as FsPath;

use ashway_modules::eth::parse_mac;

use crate::read::{Reader, Section};
use crate::types::{Attach, IfaceConfig, OwnIface, ReplayPace};

/// The keys, and by which `attach` an interface has each.
const KEYS: [(&str, &[Attach]); 5] = [
    ("mac", &[Attach::Tap, Attach::Pcap, Attach::Memory]),
    ("read", &[Attach::Pcap]),
    ("write", &[Attach::Pcap]),
    ("pace", &[Attach::Pcap]),
    ("peer", &[Attach::Memory]),
];

/// Reads them. Files are relative to `directory`.
pub(super) fn read(
    section: &mut Section<'_, '_, '_>,
    directory: &FsPath,
    attach: Attach,
) -> OwnIface {
    for (key, of) in KEYS {
        if section.has(key) && !of.contains(&attach) {
            let span = section.place(key);
            let words = of
                .iter()
                .map(|attach| format!("`attach = {:?}`", attach.word()));
            let words = words.collect::<Vec<_>>().join(" or ");
            let message = format!("`{key}` does nothing with `attach = {:?}`", attach.word());
            let hint = Some(format!("it is for {words}"));
            section.reader.error("contradiction", span, message, hint);
        }
    }
    let mut file = |key| {
        let (file, _) = section.string(key)?;
        let file = directory.join(file);
        // The same from wherever the configuration is read again.
        Some(std::path::absolute(&file).unwrap_or(file))
    };
    let own = OwnIface {
        read: file("read"),
        write: file("write"),
        mac: mac(section),
        pace: section.word("pace", ReplayPace::WORDS).unwrap_or_default(),
        peer: section.name("peer"),
    };
    if attach == Attach::Pcap {
        check_files(section, &own);
    }
    own
}

fn mac(section: &mut Section<'_, '_, '_>) -> Option<[u8; 6]> {
    let (text, span) = section.string("mac")?;
    let read = parse_mac(text).map_err(|refused| (refused.because, refused.hint));
    let read = read.and_then(|mac| {
        // IEEE 802 clause 8.2: the first bit of a group's address is set.
        let is_of_one = mac[0] & 1 == 0 && mac != [0; 6];
        is_of_one.then_some(mac).ok_or_else(|| {
            let because = format!("`{text}` is no address of one station");
            (because, "write one that begins with `02`".to_owned())
        })
    });
    let note = |(message, hint)| section.reader.error("bad_value", span, message, Some(hint));
    read.map_err(note).ok()
}

fn check_files(section: &mut Section<'_, '_, '_>, own: &OwnIface) {
    let cannot_be = [
        own.read.as_ref().and_then(|file| {
            let because = match file.metadata() {
                Ok(found) if found.is_dir() => "it is a directory".to_owned(),
                Ok(_) => return None,
                Err(error) => error.to_string(),
            };
            Some(("read", file, because))
        }),
        own.write.as_ref().and_then(|file| {
            let folder = file.parent()?;
            let because = match folder.metadata() {
                _ if file.is_dir() => "it is a directory".to_owned(),
                Ok(_) => return None,
                Err(error) => format!("`{}`: {error}", folder.display()),
            };
            Some(("write", file, because))
        }),
    ];
    for (key, file, because) in cannot_be.into_iter().flatten() {
        let message = format!("cannot {key} `{}`: {because}", file.display());
        let hint = "paths are relative to the directory of the configuration".to_owned();
        let span = section.place(key);
        section
            .reader
            .error("missing_file", span, message, Some(hint));
    }
    let (code, key, message, hint) = match (&own.read, &own.write) {
        (None, None) => (
            "missing_key",
            "read",
            "a capture in the place of an interface needs a file".to_owned(),
            "add `read = \"in.pcap\"`, `write = \"out.pcap\"` or both",
        ),
        (Some(read), Some(write)) if is_same(read, write) => (
            "contradiction",
            "write",
            format!("`{}` would be read and written at once", write.display()),
            "write into another file",
        ),
        _ => return,
    };
    let span = section.place(key);
    section
        .reader
        .error(code, span, message, Some(hint.to_owned()));
}

/// Whether both are one file, by whatever name. What is no regular file (`/dev/null`) may be
/// written by all.
fn is_same(one: &FsPath, other: &FsPath) -> bool {
    // One that is not there yet is what its name in its folder will be.
    let place = |file: &FsPath| {
        let folder = file.parent().filter(|folder| *folder != FsPath::new(""));
        let folder = folder.unwrap_or_else(|| FsPath::new(".")).canonicalize();
        Some((folder.ok()?, file.file_name()?.to_owned()))
    };
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => {
            one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        (Err(_), Err(_)) => one == other || place(one).is_some_and(|it| place(other) == Some(it)),
        _ => false,
    }
}

/// What an interface writes, no other reads or writes.
pub(super) fn check_captures(
    reader: &mut Reader<'_>,
    ifaces: &[IfaceConfig],
    places: &[Range<usize>],
) {
    for (at, (iface, span)) in ifaces.iter().zip(places).enumerate() {
        for before in &ifaces[..at] {
            let (own, its) = (&iface.own, &before.own);
            let pairs = [
                (&own.write, &its.write),
                (&own.write, &its.read),
                (&own.read, &its.write),
            ];
            let shared = pairs.into_iter().find_map(|pair| match pair {
                (Some(file), Some(other)) if is_same(file, other) => Some(file.display()),
                _ => None,
            });
            if let Some(file) = shared {
                let message = format!(
                    "`{file}` is a capture of `{}` and of `{}`, and one of them writes it",
                    before.name, iface.name
                );
                let hint = "write each capture into a file of its own".to_owned();
                reader.error("contradiction", span.clone(), message, Some(hint));
            }
        }
    }
}

/// A link in memory has two ends at most, and both say the same of it.
pub(super) fn check_peers(
    reader: &mut Reader<'_>,
    ifaces: &[IfaceConfig],
    places: &[Range<usize>],
) {
    for (iface, span) in ifaces.iter().zip(places) {
        // On another interface the key itself is a mistake.
        let (Some(peer), Attach::Memory) = (&iface.own.peer, iface.attach) else {
            continue;
        };
        let name = &iface.name;
        let rival =
            |other: &&IfaceConfig| other.name != *name && other.own.peer.as_ref() == Some(peer);
        let message = match ifaces.iter().find(|other| other.name == *peer) {
            _ if peer == name => format!("`{name}` cannot be its own peer"),
            None => format!("there is no `[iface.{peer}]`, the peer of `{name}`"),
            Some(other) if other.attach != Attach::Memory => {
                let word = other.attach.word();
                format!("the peer of `{name}`, `{peer}`, has `attach = \"{word}\"`")
            }
            Some(other) if other.own.peer.as_ref().is_some_and(|its| its != name) => {
                format!("`{peer}` is to be the peer of `{name}`, and names another")
            }
            Some(_) => match ifaces.iter().find(rival) {
                Some(rival) => {
                    format!(
                        "`{peer}` is to be the peer of `{name}` and of `{}`",
                        rival.name
                    )
                }
                None => continue,
            },
        };
        let hint = "a link in memory joins two interfaces with `attach = \"memory\"`; `peer` at \
                    one of them is enough";
        reader.error(
            "contradiction",
            span.clone(),
            message,
            Some(hint.to_owned()),
        );
    }
}
