use super::*;

fn rooms() -> Vec<Buffer> {
    (0..4).map(|_| Buffer::new(HEADROOM_BYTES + 100)).collect()
}

/// What of a link was received, and lost on the way.
fn drain(medium: &mut MemoryMedium) -> (Vec<Vec<u8>>, u64) {
    let (mut rooms, mut all) = (rooms(), Vec::new());
    loop {
        let taken = medium.receive(&mut rooms).unwrap();
        for (at, room) in rooms.iter().enumerate().take(taken) {
            let Received { len, .. } = medium.received(at);
            let front = &room[HEADROOM_BYTES..][..len.min(100)];
            all.push([front, medium.rest(at, 100)].concat());
        }
        if taken == 0 {
            return (all, medium.lost());
        }
    }
}

#[test]
fn frames_of_any_length_come_as_they_were_given() {
    let (mut medium, far) = link().unwrap();
    let all: Vec<Vec<u8>> = [0, 1, 99, 100, 101, LONGEST].map(|len| vec![7; len]).into();
    for frame in &all {
        far.give(frame).unwrap();
    }
    assert_eq!(far.give(&vec![0; LONGEST + 1]), Err(NotTaken::TooLong));
    assert_eq!(drain(&mut medium), (all, 0));
    assert_eq!(medium.send(&[1]), Count::OutHandedOver);
    assert_eq!(medium.send(&vec![0; LONGEST + 1]), Count::OutDroppedTooLong);
    assert_eq!(medium.pass(&[2]), Count::Passed);
    assert_eq!(far.take(Duration::ZERO).as_deref(), Some(&[1][..]));
    assert_eq!(far.take_passed(Duration::ZERO).as_deref(), Some(&[2][..]));
    drop(far);
    assert_eq!(medium.send(&[1]), Count::OutDroppedIfaceDown);
    assert_eq!(medium.pass(&[1]), Count::DroppedNoHost);
}

/// Each frame that was given is received or lost, and known as that.
fn every_frame_is_counted() -> bool {
    let (mut medium, far) = link().unwrap();
    let given = ROOM + 25;
    for number in 0..given {
        let taken = far.give(&number.to_be_bytes());
        let has_room = number < ROOM;
        assert_eq!(taken.is_ok(), has_room, "{number}: {taken:?}");
    }
    let (received, lost) = drain(&mut medium);
    assert_eq!(received.len(), ROOM);
    received.len() as u64 + lost == given as u64
}

#[test]
fn what_finds_no_room_is_counted() {
    assert!(every_frame_is_counted());
    assert!(!bug::with(Bug::OverflowNotCounted, every_frame_is_counted));
}

#[test]
fn what_one_of_two_interfaces_sends_comes_to_the_other() {
    let [mut one, mut other] = joined().unwrap();
    assert_eq!(one.send(&[1]), Count::OutHandedOver);
    assert_eq!(other.send(&[2]), Count::OutHandedOver);
    assert_eq!(drain(&mut other), (vec![vec![1]], 0));
    assert_eq!(drain(&mut one), (vec![vec![2]], 0));
    assert_eq!(one.pass(&[3]), Count::DroppedNoHost);
    assert_eq!(drain(&mut other), (vec![], 0));
    for _ in 0..ROOM {
        assert_eq!(one.send(&[1]), Count::OutHandedOver);
    }
    assert_eq!(
        one.send(&[1]),
        Count::OutDroppedTxFull,
        "its sender counts it"
    );
    assert_eq!(drain(&mut other).1, 0, "and nobody else");
}

/// A receiver that sleeps is woken, and its descriptor says nothing when all is taken.
#[test]
fn no_ring_is_slept_on_and_none_stays() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let (mut medium, far) = link().unwrap();
    let rings = |medium: &MemoryMedium, wait: &Timespec| {
        let fd = medium.fd().unwrap();
        poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(wait),
        )
        .unwrap()
            > 0
    };
    let [at_once, long] = [0, 30].map(|tv_sec| Timespec { tv_sec, tv_nsec: 0 });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..20_000_u32 {
                while far.give(&number.to_be_bytes()) == Err(NotTaken::Full) {
                    std::thread::yield_now();
                }
            }
        });
        let mut received = 0;
        while received < 20_000 {
            assert!(rings(&medium, &long), "slept on {received}");
            // What found no room was given again.
            received += drain(&mut medium).0.len();
        }
    });
    drain(&mut medium);
    assert!(!rings(&medium, &at_once));
}
