//! The `AF_XDP` transmit socket on a real veth.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod namespace;

use ashway_ring::{BindError, PacketSocket, SendError, TxSocket};
use namespace::{ifindex, inside, received, veth};

/// A frame of a type nobody handles, with a number in it.
fn frame(number: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The number, if the frame is one of ours.
fn number(frame: &[u8]) -> Option<u32> {
    (frame.get(12..14)? == [0x88, 0xb5])
        .then(|| u32::from_be_bytes(frame[14..18].try_into().unwrap()))
}

#[test]
fn every_accepted_frame_arrives_in_order() {
    inside("every_accepted_frame_arrives_in_order", || {
        veth();
        let mut far = PacketSocket::open(ifindex("far")).unwrap();
        let mut near = TxSocket::bind(ifindex("near"), 0, 64).unwrap();
        let mut arrived = Vec::new();
        let mut fulls = 0;
        for next in 0..10_000 {
            while let Err(error) = near.send(&frame(next)) {
                assert!(matches!(error, SendError::TxFull));
                fulls += 1;
                near.kick().unwrap();
                while received(&mut far, |frame| arrived.extend(number(frame))) > 0 {}
            }
        }
        near.kick().unwrap();
        while received(&mut far, |frame| arrived.extend(number(frame))) > 0 {}
        assert_eq!(far.lost().unwrap(), 0);
        assert_eq!(arrived, (0..10_000).collect::<Vec<_>>());
        // 64 chunks: without a kick the 65th frame is refused, each time.
        assert_eq!(fulls, 10_000 / 64);
        near.reclaim();
        assert_eq!(near.pending(), 0);
    });
}

#[test]
fn a_full_ring_says_so_until_it_is_kicked() {
    inside("a_full_ring_says_so_until_it_is_kicked", || {
        veth();
        let mut near = TxSocket::bind(ifindex("near"), 0, 4).unwrap();
        for next in 0..4 {
            near.send(&frame(next)).unwrap();
        }
        for _ in 0..3 {
            assert!(matches!(near.send(&frame(9)), Err(SendError::TxFull)));
        }
        assert_eq!(near.pending(), 4);
        near.kick().unwrap();
        assert_eq!(near.pending(), 0);
        assert_eq!(near.reclaim(), 4);
        near.send(&frame(4)).unwrap();
        assert!(matches!(
            near.send(&vec![0; 70_000]),
            Err(SendError::TooLong { bytes: 70_000 })
        ));
    });
}

#[test]
fn who_cannot_bind_is_told_why() {
    inside("who_cannot_bind_is_told_why", || {
        veth();
        let index = ifindex("near");
        let holder = TxSocket::bind(index, 0, 4).unwrap();
        assert!(matches!(
            TxSocket::bind(index, 0, 4),
            Err(BindError::QueueTaken { queue: 0, .. })
        ));
        drop(holder);
        // The kernel lets go of the queue a moment after the socket is closed.
        let again = (0..200).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            TxSocket::bind(index, 0, 4).ok()
        });
        assert!(again.is_some());
        assert!(matches!(
            TxSocket::bind(index, 100, 4),
            Err(BindError::NoSuchQueue { queue: 100, .. })
        ));
        assert!(matches!(
            TxSocket::bind(9999, 0, 4),
            Err(BindError::NoSuchQueue { ifindex: 9999, .. })
        ));
    });
}
