//! Links, owners, live runs and facts, on veths in namespaces of our own.

mod common;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use ashway_kernel::attach::AttachError;
use ashway_kernel::{
    Attached, DetachError, Iface, Mode, Program, ProgramKind, ProgramSpec, XdpContext, XdpMode,
    detach_ashway, iface, owner,
};
use ashway_rig::skip_unless_root;
use common::{EXIT, XDP_PASS, in_namespace, ip, mov, returning, run};

fn index(name: &str) -> u32 {
    Iface::by_name(name).expect("the veth is there").ifindex
}

#[test]
fn a_link_has_an_owner_and_goes_when_dropped() {
    if skip_unless_root() {
        return;
    }
    in_namespace(|| {
        let a = index("near");
        assert!(owner(a).expect("asked").is_none());
        let program = returning("ashway_t_pass", XDP_PASS);
        let link = Attached::xdp(&program, a, Mode::Native).expect("attached");

        let found = owner(a).expect("asked").expect("somebody");
        assert_eq!(found.prog_id, program.id());
        assert_eq!(found.prog_name.as_deref(), Some("ashway_t_pass"));
        assert_eq!((found.uid, found.mode), (Some(0), Some(XdpMode::Native)));
        assert!(found.link_id.is_some() && found.is_ashway());
        let process = found.process.expect("this one");
        assert_eq!(process.pid, std::process::id());

        let second = returning("ashway_t_two", XDP_PASS);
        for mode in [Mode::Native, Mode::Generic] {
            let error = Attached::xdp(&second, a, mode).expect_err("taken");
            let AttachError::Taken { owner, .. } = &error else {
                panic!("{error:?}");
            };
            let owner = owner.as_ref().expect("known");
            assert_eq!(owner.prog_id, program.id());
            assert!(error.hint().contains("ashway iface detach"), "{error}");
        }

        drop(link);
        assert!(owner(a).expect("asked").is_none());
        let link = Attached::xdp(&second, a, Mode::Generic).expect("free again");
        let found = owner(a).expect("asked").expect("somebody");
        assert_eq!(found.mode, Some(XdpMode::Generic));
        link.detach().expect("detached");
        assert!(owner(a).expect("asked").is_none());
    });
}

#[test]
fn a_link_changes_its_program_and_stays() {
    if skip_unless_root() {
        return;
    }
    in_namespace(|| {
        let a = index("near");
        let first = returning("ashway_t_one", XDP_PASS);
        let second = returning("ashway_t_two", XDP_PASS);
        for mode in [Mode::Native, Mode::Generic] {
            let link = Attached::xdp(&first, a, mode).expect("attached");
            let before = owner(a).expect("asked").expect("somebody");
            link.update(&second).expect("updated");
            let after = owner(a).expect("asked").expect("somebody");
            assert_eq!(after.prog_id, second.id());
            assert_eq!(after.link_id, before.link_id);

            // What is no XDP program is refused, and nothing changes.
            link.update(&tcx_program("ashway_t_tcx"))
                .expect_err("another kind");
            let still = owner(a).expect("asked").expect("somebody");
            assert_eq!(still.prog_id, second.id());

            drop(link);
            assert!(owner(a).expect("asked").is_none());
        }
    });
}

#[test]
fn an_absent_interface_is_named() {
    if skip_unless_root() {
        return;
    }
    in_namespace(|| {
        let program = returning("ashway_t_pass", XDP_PASS);
        let error = Attached::xdp(&program, 4_000_000, Mode::Native).expect_err("absent");
        assert!(
            matches!(error, AttachError::NoInterface { .. }),
            "{error:?}"
        );
        assert!(owner(4_000_000).is_err());
    });
}

#[test]
fn ours_are_detached_and_foreign_ones_refused() {
    if skip_unless_root() {
        return;
    }
    in_namespace(|| {
        let (a, b) = (index("near"), index("far"));
        let ours = returning("ashway_t_pass", XDP_PASS);
        let foreign = returning("somebody", XDP_PASS);
        let tcx = tcx_program("ashway_t_tcx");
        let tcx_foreign = tcx_program("somebody_tcx");
        let _kept_xdp = Attached::xdp(&ours, a, Mode::Native).expect("attached");
        let _kept_tcx = Attached::tcx(&tcx, a).expect("attached");
        let _other_tcx = Attached::tcx(&tcx_foreign, a).expect("attached");
        let _foreign = Attached::xdp(&foreign, b, Mode::Native).expect("attached");
        let _on_b = Attached::tcx(&tcx, b).expect("attached");

        let mut hooks: Vec<_> = detach_ashway(a)
            .expect("detached")
            .into_iter()
            .map(|d| {
                let process = d.process.expect("this one");
                assert_eq!(process.pid, std::process::id());
                (d.hook, d.prog_id)
            })
            .collect();
        hooks.sort_unstable();
        assert_eq!(hooks, [("tcx", tcx.id()), ("xdp", ours.id())]);
        assert!(owner(a).expect("asked").is_none());
        assert_eq!(detach_ashway(a).expect("nothing left"), []);

        let error = detach_ashway(b).expect_err("foreign");
        let DetachError::Foreign { owner: who, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(who.prog_id, foreign.id());
        assert!(
            error.to_string().contains("`somebody` of process"),
            "{error}"
        );
        let still = owner(b).expect("asked").expect("still there");
        assert_eq!(still.prog_id, foreign.id());
    });
}

fn tcx_program(name: &str) -> Program {
    Program::load(&ProgramSpec {
        name,
        kind: ProgramKind::SchedCls,
        attach_type: 0,
        // TCX_NEXT
        insns: &[mov(0, -1), EXIT],
        maps: &[],
        btf: None,
    })
    .expect("loaded")
}

#[test]
fn a_message_is_handed_back_to_the_hosts_stack() {
    if skip_unless_root() {
        return;
    }
    in_namespace(|| {
        ip("address add 10.77.0.1/24 dev near");
        let iface = Iface::by_name("near").expect("there");
        let program = returning("ashway_t_pass", XDP_PASS);
        let _link = Attached::xdp(&program, iface.ifindex, Mode::Native).expect("attached");
        let socket = UdpSocket::bind("10.77.0.1:7777").expect("bound");
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .expect("set");

        let frame = udp_frame(iface.mac, b"hello");
        let mut times = Vec::new();
        for _ in 0..50 {
            let start = Instant::now();
            program
                .run_live(&frame, 1, iface.ifindex)
                .expect("handed back");
            times.push(start.elapsed());
            let mut buffer = [0; 64];
            let (len, from) = socket.recv_from(&mut buffer).expect("received");
            assert_eq!(&buffer[..len], b"hello");
            assert_eq!(from.to_string(), "10.77.0.2:5555");
        }
        times.sort_unstable();
        println!(
            "live run of one frame: median {:?}, max {:?}",
            times[25], times[49]
        );

        // The same frame, said to come from there, without being delivered.
        let result = program
            .test_run(&ashway_kernel::TestRun {
                packet: &frame,
                context: Some(XdpContext::from_interface(frame.len(), iface.ifindex)),
                repeat: 1,
            })
            .expect("run");
        assert_eq!((result.retval, result.packet), (XDP_PASS as u32, frame));
    });
}

/// A UDP datagram from 10.77.0.2:5555 to 10.77.0.1:7777, no UDP checksum.
fn udp_frame(mac: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![
        0x45,
        0,
        0,
        28 + payload.len() as u8,
        0,
        1,
        0,
        0,
        64,
        17,
        0,
        0,
    ];
    ip.extend([10, 77, 0, 2, 10, 77, 0, 1]);
    let sum: u32 = ip
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = mac.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9, 8, 0]);
    frame.extend(ip);
    frame.extend(5555u16.to_be_bytes());
    frame.extend(7777u16.to_be_bytes());
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

#[test]
fn whether_the_peer_takes_what_xdp_sends_is_measured() {
    if skip_unless_root() {
        return;
    }
    in_namespace(|| {
        let a = index("near");
        let takes = || {
            let start = Instant::now();
            let answer = iface::veth_peer_takes_xdp_tx(a).expect("measured");
            println!(
                "peer takes XDP_TX: {answer}, found in {:?}",
                start.elapsed()
            );
            answer
        };
        assert!(!takes(), "a stock veth's peer has no NAPI");
        run("ethtool", "-K far gro on");
        assert!(takes(), "GRO gives the peer NAPI");
        run("ethtool", "-K far gro off");
        assert!(!takes());
        let program = returning("ashway_t_pass", XDP_PASS);
        let link = Attached::xdp(&program, index("far"), Mode::Native).expect("attached");
        assert!(takes(), "so does an XDP program");
        drop(link);
        assert!(!takes());
    });
}

#[test]
fn facts_about_a_veth() {
    if skip_unless_root() {
        return;
    }
    in_namespace(|| {
        ip(
            "link add one numrxqueues 2 numtxqueues 2 type veth peer name two numrxqueues 2 numtxqueues 2",
        );
        ip("link set one mtu 1400 address 02:00:00:00:00:07");
        let c = Iface::by_name("one").expect("there");
        assert_eq!(c.mac, [2, 0, 0, 0, 0, 7]);
        assert_eq!((c.mtu, c.rx_queues, c.tx_queues), (1400, 2, 2));
        assert_eq!((c.driver.as_str(), c.is_veth, c.up), ("veth", true, false));
        assert!(c.offloads.tso && !c.offloads.gro);
        assert!(Iface::by_name("near").expect("there").up);
        assert_eq!(Iface::by_index(c.ifindex).expect("there").name, "one");
        assert!(Iface::by_name("none").is_err());

        let stats = iface::stats("one").expect("read");
        assert_eq!(stats.xdp_sum("_xdp_tx_errors"), Some(0));
        assert_eq!(stats.xdp_sum("_no_such"), None);
        assert!(!Iface::by_name("lo").expect("there").is_veth);
        assert!(iface::stats("lo").expect("read").xdp.is_empty());
    });
}
