//! Captures in the place of interfaces.

use std::fs::File;
use std::io::Seek as _;

use pcap_file::pcap::{PcapPacket, PcapWriter};
use rustix::fs::{MemfdFlags, memfd_create};

use super::*;
use crate::bug::{self, Bug};
use crate::capture::CaptureReader;
use crate::frame_port::Rooms;
use crate::medium::capture::{CaptureMedium, CaptureProgress};
use ashway_config::ReplayPace;

/// How many frames of a capture come while a path has a message.
fn frames_that_come_meanwhile() -> u64 {
    let (_orders, receiver) = channel();
    let mut paths = Paths::new(IfaceMap::default(), CounterRow(0), receiver, Arc::default());
    let rows = UserRows::new(1);
    let id = Ids::default().take();
    paths.insert(new(
        id,
        Box::new(Fragile {
            held: Arc::default(),
        }),
    ));
    let (mut port, progress) = capture_port();
    receive(&mut paths, id, &[1], &rows);
    while packets::drain(&mut port, &mut paths, &rows, now).unwrap() {}
    let meanwhile = progress.read();
    paths.run(&rows);
    while packets::drain(&mut port, &mut paths, &rows, now).unwrap() {}
    assert_eq!(progress.read(), 3, "they come when it is done");
    meanwhile
}

/// A port by which a capture of three frames comes.
fn capture_port() -> (FramePort, Arc<CaptureProgress>) {
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for _ in 0..3 {
        let packet = PcapPacket::new(Duration::ZERO, 60, &[0xff; 60]);
        writer.write_packet(&packet).unwrap();
    }
    let mut file = File::from(memfd_create("capture", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(&writer.into_writer()).unwrap();
    file.rewind().unwrap();
    let reader = CaptureReader::new(file).unwrap();
    let bell = Arc::new(Bell::new().unwrap());
    let medium = CaptureMedium::new("x", Some(reader), None, ReplayPace::Full, bell).unwrap();
    let progress = medium.progress();
    progress.begin();
    let port = FramePort {
        medium: Box::new(medium),
        rooms: Rooms::new(1500),
        iface: 0,
        mac: [2, 0, 0, 0, 0, 1].into(),
        unmatched_row: CounterRow(0),
    };
    (port, progress)
}

#[test]
fn a_frame_of_a_capture_comes_when_all_is_done() {
    assert_eq!(frames_that_come_meanwhile(), 0);
    let bugs = bug::with(Bug::CaptureNotHeldBack, frames_that_come_meanwhile);
    assert_eq!(bugs, 3);
}
