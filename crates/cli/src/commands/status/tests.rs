use ashway_api::Scalar;
use ashway_api::answer::{
    AllModulePaths, Because, BoundTo, Counts, Fates, Handler, HandlerProgram, HandlerPromotion,
    Interface, LastFault, LostAfterHandOver, Path, PathBase, PathShare, SourceLine, Tally,
    Unmatched,
};

use super::handlers::param;
use super::paths::order;
use super::*;

fn tallied<const N: usize>(counts: [(&'static str, u64); N]) -> Tally {
    Tally(counts.map(|(name, times)| (name.into(), times)).into())
}

fn status() -> answer::Status {
    let iface = Interface {
        name: "veth0".to_owned(),
        mode: "native".into(),
        reply: "af_xdp".into(),
        udp_checksum: "whole".into(),
        unmatched: Unmatched {
            passed: 12,
            overflowed: 0,
            no_host: 0,
        },
        ..Interface::default()
    };
    let counter = Handler {
        name: "counter".to_owned(),
        promotion: HandlerPromotion {
            state: "promoted".into(),
            program: Some(HandlerProgram {
                insns: 101,
                verified_insns: 102,
                load_us: 180,
                ..HandlerProgram::default()
            }),
            ..HandlerPromotion::default()
        },
        ..Handler::default()
    };
    let turning = Handler {
        name: "loop".to_owned(),
        promotion: HandlerPromotion {
            state: "user".into(),
            why: Some(Because {
                because: Some("floating point".into()),
                hint: None,
            }),
            place: Some(SourceLine {
                line: Some("loop.c:9".to_owned()),
            }),
            program: None,
        },
        last_fault: Some(LastFault {
            cause: Some("fuel".into()),
            file: Some("loop.c".to_owned()),
            line: Some(7),
            count: 2,
            hint: Some("mend it".to_owned()),
            ..LastFault::default()
        }),
        ..Handler::default()
    };
    let counts = Counts {
        received: 20_005,
        fates: Fates {
            others: tallied([("consumed", 0), ("answered", 20_000)]),
            dropped: tallied([("bad_length", 3), ("fault", 2)]),
        },
        notes: tallied([("queued_busy", 4)]),
        aborts: tallied([("voluntary", 0), ("fuel", 2)]),
        out: Some(Fates {
            others: tallied([("originated", 5), ("handed_over", 5)]),
            dropped: tallied([("tx_full", 0)]),
        }),
        balanced: true,
        ..Counts::default()
    };
    let inc = Path {
        base: PathBase {
            name: "inc".to_owned(),
            counts,
            ..PathBase::default()
        },
        ran_in: Some(RanIn {
            kernel: 19_996,
            user: 9,
        }),
        bound: Some(BoundTo::default()),
        ..Path::default()
    };
    answer::Status {
        interfaces: vec![iface],
        handlers: vec![counter, turning],
        paths: vec![inc],
        ..answer::Status::default()
    }
}

fn base(status: &mut answer::Status) -> &mut PathBase {
    &mut status.paths[0].base
}

#[test]
fn every_number_that_is_not_zero_is_shown() {
    let shown = render(&status());
    for part in [
        "veth0      native  af_xdp",
        "101 instructions, 102 verified, loaded in 180 us",
        "floating point (loop.c:9)",
        "fuel        loop.c:7      2",
        "hint: loop: mend it",
        "answered 20000, dropped 5",
        "99.9 %",
        "queued_busy 4",
        "inc   dropped  bad_length         3",
        "inc   aborted  fuel               2",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    for part in ["consumed", "voluntary", "tx_full", "do not close"] {
        assert!(!shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn a_share_is_shown_with_its_mode() {
    let mut status = status();
    assert!(!render(&status).contains("SHARE"));
    base(&mut status).share = Some(PathShare {
        share: "12.5 %, 7000/s".to_owned(),
        mode: Some("lazy".into()),
    });
    let shown = render(&status);
    assert!(shown.contains("inc   12.5 %, 7000/s  lazy"), "{shown}");
}

#[test]
fn an_order_that_is_not_the_usual_is_shown() {
    for (word, says) in [
        ("flow", ""),
        (
            "path",
            "path `p`: messages keep their order as a whole (`order = \"path\"`)\n",
        ),
        (
            "none",
            "path `p`: no message waits for another (`order = \"none\"`)\n",
        ),
    ] {
        assert_eq!(order("p", Some(word)), says);
    }
    assert_eq!(order("p", None), "");
}

#[test]
fn what_the_shared_ring_lost_is_shown() {
    let mut status = status();
    assert!(!render(&status).contains("WITHOUT A HANDLER"));
    status.module_paths = AllModulePaths {
        paths: 3,
        counts: Counts {
            received: 7058,
            fates: Fates {
                others: tallied([("consumed", 2909), ("passed", 0)]),
                dropped: tallied([("ring_full", 4149)]),
            },
            balanced: true,
            ..Counts::default()
        },
        ..AllModulePaths::default()
    };
    let shown = render(&status);
    for part in ["consumed 2909, dropped_ring_full 4149", "7058"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert!(!shown.contains("do not close"), "{shown}");
}

#[test]
fn a_number_stands_in_each_column_of_an_interface() {
    let mut status = status();
    let shown = interfaces(&status);
    assert!(shown.trim_end().ends_with(" 0"), "{shown}");
    status.interfaces[0].lost_after_hand_over = LostAfterHandOver { driver: 1 };
    assert!(interfaces(&status).trim_end().ends_with("driver 1"));
    status.interfaces[0].unmatched.overflowed = 3;
    let shown = interfaces(&status);
    assert!(shown.contains("lost: veth0: 3 frames found"), "{shown}");
}

#[test]
fn a_status_without_anything_in_it_is_empty() {
    assert_eq!(render(&answer::Status::default()), "");
    let mut unbalanced = status();
    base(&mut unbalanced).counts.balanced = false;
    assert!(paths(&unbalanced).contains("sums do not close"));
    let mut many = status();
    many.paths_not_listed = 3;
    assert!(paths(&many).contains("and 3 more"));
}

#[test]
fn a_parameter_that_is_a_text_is_told_from_a_number() {
    let name = "step".to_owned();
    assert_eq!(param((&name, &Scalar::Number(5))), "step=5");
    let text = Scalar::Text("5".to_owned());
    assert_eq!(param((&name, &text)), "step=\"5\"");
}
