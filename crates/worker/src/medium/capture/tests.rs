use std::io::{Seek as _, Write};

use pcap_file::pcap::{PcapPacket, PcapWriter};
use rustix::fs::{MemfdFlags, memfd_create};

use super::*;

/// A file with this in it.
fn file(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("capture", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// Frames of several lengths.
fn frames() -> Vec<Vec<u8>> {
    (0..12_usize)
        .map(|at| vec![at as u8; 14 + at * 37])
        .collect()
}

fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for (at, frame) in frames.iter().enumerate() {
        let time = Duration::from_micros(at as u64);
        let packet = PcapPacket::new(time, frame.len() as u32, frame);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), SNAPLEN, Duration::ZERO).unwrap();
    for (at, frame) in frames.iter().enumerate() {
        let record = Record {
            at: Time(at as u64 * 1000),
            bound: Bound::Inbound,
            interface: "x",
            layer: Layer::Link,
            bytes: frame,
            fate: None,
            comment: "",
        };
        writer.write(&record).unwrap();
    }
    writer.into_inner()
}

fn medium(bytes: &[u8], pace: ReplayPace) -> Result<CaptureMedium, String> {
    let reader = CaptureReader::new(file(bytes))?;
    let bell = Arc::new(Bell::new().unwrap());
    let medium = CaptureMedium::new("x", Some(reader), None, pace, bell).unwrap();
    medium.progress().begin();
    Ok(medium)
}

/// What comes of a capture at full pace.
fn received(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, Arc<CaptureProgress>), String> {
    let mut medium = medium(bytes, ReplayPace::Full)?;
    let (progress, mut all) = (medium.progress(), Vec::new());
    let mut rooms = [Buffer::new(HEADROOM_BYTES + 100)];
    while progress.end().is_none() {
        if medium.receive(&mut rooms).unwrap() > 0 {
            let Received { len, .. } = medium.received(0);
            let front = &rooms[0][HEADROOM_BYTES..][..len.min(100)];
            all.push([front, medium.rest(0, 100)].concat());
        }
    }
    assert_eq!(medium.due_at(), None);
    assert_eq!(progress.read(), all.len() as u64);
    Ok((all, progress))
}

/// Wherever a capture breaks off, the frames before that come, whole and in order, and the end is
/// told for what it is.
#[test]
fn a_capture_that_is_cut_anywhere_loses_nothing_before_that_place() {
    let frames = frames();
    for whole in [pcap(&frames), pcapng(&frames)] {
        let mut most = 0;
        for cut in 0..=whole.len() {
            let Ok((got, progress)) = received(&whole[..cut]) else {
                assert!(cut < 48, "the beginning is there at {cut}");
                continue;
            };
            assert_eq!(got, frames[..got.len()], "at {cut}");
            let has_more = got.len() == most + 1;
            assert!(has_more || got.len() == most, "at {cut}");
            most = got.len();
            // A frame is told when its last byte is there, and then the file is not broken.
            assert!(!has_more || progress.end() == Some(&Ok(())), "at {cut}");
        }
        assert_eq!(most, frames.len());
    }
}

/// Captures with bytes that somebody has changed end, too, and what comes is no longer than they
/// are.
#[test]
fn a_capture_may_say_anything() {
    let frames = frames();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % below
    };
    for whole in [pcap(&frames), pcapng(&frames)] {
        for _ in 0..2000 {
            let mut bytes = whole.clone();
            for _ in 0..=next(4) {
                let at = next(bytes.len());
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, next(256) as u8][next(6)];
            }
            if let Ok((got, _)) = received(&bytes) {
                assert!(got.concat().len() <= bytes.len());
            }
        }
    }
}

/// A frame of which the capture has a part only is none; it is counted.
#[test]
fn a_frame_that_the_capture_has_cut_does_not_come() {
    let frames = frames();
    let mut bytes = pcap(&frames);
    // The length on the wire of the second record: 64 KiB more.
    let at = 24 + 16 + frames[0].len() + 12;
    let is_little = bytes[0] != 0xa1;
    bytes[if is_little { at + 2 } else { at + 1 }] = 1;
    let (got, progress) = received(&bytes).unwrap();
    assert_eq!((got.len(), progress.cut()), (frames.len() - 1, 1));
    assert_eq!((&got[0], &got[1]), (&frames[0], &frames[2]));
}

#[test]
fn at_its_own_pace_a_frame_comes_not_before_its_time() {
    let frames = frames();
    let mut medium = medium(&pcap(&frames), ReplayPace::Capture).unwrap();
    let mut rooms = [Buffer::new(HEADROOM_BYTES + 1000)];
    let begin = now();
    let mut came = Vec::new();
    while medium.due_at().is_some() {
        let due = medium.due_at().unwrap();
        if medium.receive(&mut rooms).unwrap() > 0 {
            assert!(medium.last.unwrap().1 >= due);
            came.push(medium.last.unwrap().1);
        }
    }
    assert_eq!(came.len(), frames.len());
    let gap = Duration::from_micros(frames.len() as u64 - 1);
    assert!(came.last().unwrap().since(begin) >= gap);
}

#[test]
fn nothing_comes_before_it_may_begin_or_behind_its_end() {
    let reader = CaptureReader::new(file(&pcap(&frames()))).unwrap();
    let bell = Arc::new(Bell::new().unwrap());
    let mut medium = CaptureMedium::new("x", Some(reader), None, ReplayPace::Full, bell).unwrap();
    let mut rooms = [Buffer::new(HEADROOM_BYTES + 1000)];
    assert_eq!(medium.receive(&mut rooms).unwrap(), 0);
    assert_eq!(medium.due_at(), None);
    medium.progress().begin();
    assert_eq!(medium.receive(&mut rooms).unwrap(), 1);
    assert!(medium.due_at().is_some());
    assert!(medium.shut());
    assert_eq!(
        (medium.receive(&mut rooms).unwrap(), medium.due_at()),
        (0, None)
    );
    // Nobody keeps what leaves, and that is no error.
    assert_eq!(medium.send(&[1]), Count::OutHandedOver);
    assert_eq!(medium.pass(&[1]), Count::Passed);
}

/// What cannot be written is counted as that, and nothing behind it is.
#[test]
fn a_full_disk_is_told() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let bell = Arc::new(Bell::new().unwrap());
    let mut medium = CaptureMedium::new("x", None, Some(full), ReplayPace::Full, bell).unwrap();
    let frame = vec![0; 60_000];
    let sent: Vec<Count> = (0..3).map(|_| medium.send(&frame)).collect();
    assert!(sent.contains(&Count::OutDroppedTxFull), "{sent:?}");
    medium.flush();
    assert!(medium.progress().unwritten().is_some());
    assert_eq!(medium.send(&frame), Count::OutDroppedTxFull);
    assert_eq!(medium.pass(&frame), Count::DroppedPassFailed);
}
