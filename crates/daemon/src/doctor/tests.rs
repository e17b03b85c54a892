use super::*;
use ashway_kernel::iface::Offloads;
use ashway_kernel::probe::Capability;
use ashway_kernel::{XdpFeatures, XdpMode};

const CAPABILITIES: [&str; 5] = [
    "CAP_BPF",
    "CAP_NET_ADMIN",
    "CAP_PERFMON",
    "CAP_NET_RAW",
    "CAP_SYS_ADMIN",
];

/// A host that lacks these features, of which the kernel said `EPERM` or not,
/// and these capabilities.
fn host(missing: &[Feature], privilege: bool, lacking: &[&str]) -> Probe {
    let state = |feature| {
        if missing.contains(&feature) {
            State::Missing {
                reason: "because".to_owned(),
                privilege,
            }
        } else {
            State::Ok
        }
    };
    Probe {
        release: "6.18.3".to_owned(),
        features: Feature::ALL.into_iter().map(|f| (f, state(f))).collect(),
        capabilities: CAPABILITIES
            .into_iter()
            .map(|name| Capability {
                name,
                needed_for: "something",
                held: !lacking.contains(&name),
            })
            .collect(),
        unprivileged_bpf_disabled: Some(2),
    }
}

fn veth(takes_xdp_tx: Option<Result<bool, String>>, xdp: Option<Owner>) -> Seen {
    Seen {
        name: "b0".to_owned(),
        found: Ok(IfaceFacts {
            iface: Iface {
                name: "b0".to_owned(),
                ifindex: 7,
                mac: [2, 0, 0, 0, 0, 11],
                mtu: 1500,
                driver: "veth".to_owned(),
                kind: "veth".to_owned(),
                xdp_features: Some(XdpFeatures(0b10_0011)),
                rx_queues: 2,
                tx_queues: 2,
                is_veth: true,
                up: true,
                offloads: Offloads {
                    tso: true,
                    gro: false,
                    lro: false,
                },
            },
            xdp: Ok(xdp),
            tcx: Vec::new(),
            takes_xdp_tx,
            measured: None,
        }),
    }
}

fn report(probe: Probe, seen: Vec<Seen>) -> Report {
    Report::of(probe, Some("/usr/sbin/nft".into()), Ok(()), seen, true)
}

fn first_line(probe: Probe) -> String {
    let text = report(probe, Vec::new()).render();
    text.lines().next().unwrap().to_owned()
}

#[test]
fn the_first_line_names_the_rung_and_the_way_up() {
    assert_eq!(
        first_line(host(&[], false, &[])),
        "rung: TCX or XDP + arena (both tiers): nothing is missing, this is the highest"
    );
    assert_eq!(
        first_line(host(&[Feature::ArenaProgram], true, &["CAP_PERFMON"])),
        "rung: XDP + array (both tiers): no CAP_PERFMON; to climb: run as root, or give \
         the process CAP_PERFMON"
    );
    assert_eq!(
        first_line(host(&[Feature::Arena, Feature::ArenaProgram], false, &[])),
        "rung: XDP + array (both tiers): no arena programs (because); to climb: Linux 6.9 \
         or newer"
    );
    assert_eq!(
        first_line(host(&[Feature::Xdp], true, &["CAP_BPF", "CAP_NET_ADMIN"])),
        "rung: packet socket (user tier only): no CAP_BPF, no CAP_NET_ADMIN; to climb: run as \
         root, or give the process CAP_BPF and CAP_NET_ADMIN"
    );
}

#[test]
fn capabilities_of_a_user_namespace_are_not_believed() {
    assert_eq!(
        first_line(host(&[Feature::Xdp, Feature::ArenaProgram], true, &[])),
        "rung: packet socket (user tier only): no XDP programs (because): capabilities of a user \
         namespace do not count for it; to climb: run as root outside the user namespace"
    );
}

#[test]
fn lack_of_privilege_alone_is_no_failure() {
    let all = Feature::ALL;
    let report = report(host(&all, true, &CAPABILITIES), Vec::new());
    assert_eq!(report.exit_code(), 0);
    assert!(
        report
            .render()
            .starts_with("rung: none: no CAP_NET_RAW; to climb: `unshare -Urn`")
    );
}

#[test]
fn a_kernel_without_any_rung_is_not_supported() {
    let all = Feature::ALL;
    assert_eq!(report(host(&all, false, &[]), Vec::new()).exit_code(), 6);
}

#[test]
fn an_interface_that_was_named_must_exist() {
    let absent = || Seen {
        name: "eth9".to_owned(),
        found: Err("No such device (os error 19)".to_owned()),
    };
    let named = report(host(&[], false, &[]), vec![absent()]);
    assert_eq!(named.exit_code(), 1);
    assert!(named.render().contains("missing   link  No such device"));
    assert_eq!(named.to_json()["interfaces"][0]["found"], false);
    let listed = Report::of(host(&[], false, &[]), None, Ok(()), vec![absent()], false);
    assert_eq!(listed.exit_code(), 0);
}

#[test]
fn lines_are_aligned_and_say_which_version_brings_what() {
    let text = report(host(&[], false, &[]), vec![veth(Some(Ok(true)), None)]).render();
    for line in [
        "kernel 6.18.3",
        "  ok        may_goto                 Linux 6.9",
        "  ok        CAP_NET_ADMIN  held: something",
        "  ok        nft  /usr/sbin/nft",
        "interface b0 (driver veth)",
        "  ok        queues         2 receive, 2 transmit",
        "  ok        XDP hook       free",
        "  ok        TCX hook       free",
    ] {
        assert!(text.lines().any(|has| has == line), "{line}\nin\n{text}");
    }
}

fn program(prog_id: u32, name: &str, mode: Option<XdpMode>) -> Owner {
    Owner {
        prog_id,
        prog_name: Some(name.to_owned()),
        uid: Some(0),
        mode,
        link_id: None,
        process: None,
    }
}

#[test]
fn a_foreign_program_is_named_and_a_probe_frame_admitted() {
    let stranger = || program(41, "xdp_drop", Some(XdpMode::Native));
    let seen = || vec![veth(None, Some(stranger())), veth(Some(Ok(false)), None)];
    let text = report(host(&[Feature::Tcx], false, &[]), seen()).render();
    assert!(
        text.contains("missing   XDP hook       held by XDP program 41 `xdp_drop`"),
        "{text}"
    );
    assert!(
        text.contains("was not tried: another XDP program is attached"),
        "{text}"
    );
    let no_arena = host(&[Feature::ArenaProgram], true, &["CAP_PERFMON"]);
    let text = report(no_arena, seen()).render();
    let line = "degraded  replies        the veth's peer does not take XDP_TX (one probe frame";
    assert!(text.contains(line), "{text}");
    // Where `auto` is TCX there is room behind it.
    let report = report(host(&[], false, &[]), seen());
    let text = report.render();
    assert!(
        text.contains("degraded  XDP hook       held by XDP program 41 `xdp_drop`, loaded by uid 0, which is before TCX"),
        "{text}"
    );
    // And nothing is asked of the far end.
    let line = "ok        replies        by redirect or socket at tcx";
    assert!(text.contains(line), "{text}");
    let json = report.to_json();
    assert_eq!(json["interfaces"][0]["xdp_program"]["is_ashway"], false);
    assert_eq!(json["interfaces"][0]["veth_peer_takes_xdp_tx"], Value::Null);
    assert_eq!(json["interfaces"][1]["veth_peer_takes_xdp_tx"], false);
    assert_eq!(json["interfaces"][1]["mtu_bytes"], 1500);
}

#[test]
fn what_auto_chooses_is_said_with_its_reason_and_what_each_hook_costs() {
    let seen = || vec![veth(Some(Ok(true)), None)];
    let able = report(host(&[], false, &[]), seen());
    let text = able.render();
    for line in [
        "ok        attach         auto is tcx: it is a veth, where XDP ends the segmentation",
        "ok        cost: tcx      TCX ingress: ",
        "ok        cost: xdp      native XDP on a veth: the peer's TSO goes off",
        "ok        cost: generic  generic XDP: ",
        "ok        cost: packet   packet socket: ",
        "TSO on, GRO off, LRO off; of XDP the driver does: basic redirect rx-sg",
    ] {
        assert!(text.contains(line), "{line}\nin\n{text}");
    }
    let json = able.to_json();
    assert_eq!(json["rung"]["hooks"], json!(["xdp", "tcx"]));
    let iface = &json["interfaces"][0];
    assert_eq!(iface["auto"]["mode"], "tcx");
    assert_eq!(iface["costs"].as_object().unwrap().len(), 4);
    assert_eq!(iface["xdp_features"], json!(["basic", "redirect", "rx-sg"]));

    // What the host lacks decides before the interface.
    let lacks = |feature, privilege, lacking: &[&str]| {
        let report = report(host(&[feature], privilege, lacking), seen());
        let (text, json) = (report.render(), report.to_json());
        let first = text.lines().next().unwrap().to_owned();
        let auto = json["interfaces"][0]["auto"].clone();
        (first, json["rung"]["hooks"].clone(), auto)
    };
    let (first, hooks, auto) = lacks(Feature::Tcx, false, &[]);
    assert_eq!(
        first,
        "rung: XDP + arena (both tiers): no TCX (because); to climb: Linux 6.6 or newer"
    );
    assert_eq!((hooks, &auto["mode"]), (json!(["xdp"]), &json!("native")));
    assert_eq!(auto["because"], "TCX cannot be used (TCX: because)");
    let (_, hooks, auto) = lacks(Feature::ArenaProgram, true, &["CAP_PERFMON"]);
    assert_eq!((hooks, &auto["mode"]), (json!(["xdp"]), &json!("native")));
    let (_, hooks, auto) = lacks(Feature::Xdp, true, &["CAP_BPF"]);
    assert_eq!((hooks, &auto["mode"]), (json!([]), &json!("packet")));
}

#[test]
fn programs_before_ours_at_tcx_are_named() {
    let mut seen = veth(Some(Ok(true)), None);
    let Ok(found) = &mut seen.found else {
        unreachable!("it is there");
    };
    found.tcx = vec![program(7, "first", None), program(9, "second", None)];
    let report = report(host(&[], false, &[]), vec![seen]);
    let text = report.render();
    let line = "degraded  TCX hook       TCX program 7 `first`, loaded by uid 0; TCX program 9 \
                `second`, loaded by uid 0: before ours";
    assert!(text.contains(line), "{text}");
    let json = report.to_json();
    let programs = json["interfaces"][0]["tcx_programs"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!((programs.len(), &programs[1]["id"]), (2, &json!(9)));
}

#[test]
fn this_host_can_be_examined() {
    let report = run(&["lo".to_owned()], None);
    let json = report.to_json();
    println!("{}\n{json:#}", report.render());
    assert!(json["rung"]["name"].is_string());
    assert_eq!(
        json["kernel"]["features"].as_array().unwrap().len(),
        Feature::ALL.len()
    );
}

#[test]
fn what_was_measured_is_a_table_of_medians() {
    let host = |mtu| {
        let offloads = Offloads {
            tso: true,
            gro: false,
            lro: false,
        };
        Some(measure::Host { mtu, offloads })
    };
    let window = |frames, time: Option<(u64, u64)>| measure::Window {
        seconds: 2.0,
        frames,
        bytes: 1000 * frames,
        program: time.map(|(ns, runs)| ashway_kernel::RunTime { ns, runs }),
    };
    let way = |word, windows, host, refused: Option<&str>| measure::Way {
        word,
        windows,
        host,
        refused: refused.map(str::to_owned),
    };
    let silent = vec![window(0, None)];
    let times = [(4000, 100, 10), (2000, 300, 10), (9000, 80, 1)];
    let busy = times.map(|(frames, ns, runs)| window(frames, Some((ns, runs))));
    let mut measured = Measured {
        window: std::time::Duration::from_secs(2),
        ways: vec![
            way(None, silent.clone(), host(9000), None),
            way(Some("xdp"), busy.to_vec(), host(1500), None),
            way(Some("tcx"), Vec::new(), None, Some("it is held by X")),
        ],
    };
    let text = measured.render();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains("3 rounds of 2 s"), "{text}");
    let cells = |line: &str| {
        let cells = line.split("  ").map(str::trim);
        cells
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        cells(lines[2]),
        ["(nobody)", "0 (0-0)", "0 (0-0)", "-", "-", "as before"]
    );
    assert_eq!(
        cells(lines[3]),
        [
            "xdp",
            "16 (8-36)",
            "2000 (1000-4500)",
            "1000 (1000-1000)",
            "30 (10-80)",
            "MTU 1500 (was 9000)",
        ]
    );
    assert_eq!(
        cells(lines[4]),
        ["tcx", "-", "-", "-", "-", "refused: it is held by X"]
    );
    assert_eq!(lines.len(), 5, "{text}");
    // Where nothing came, nothing is known.
    measured.ways.truncate(1);
    let text = measured.render();
    assert!(text.ends_with("of what the traffic would lose\n"), "{text}");
    let json = measured.to_json();
    assert_eq!(json[0]["rounds"][0]["program_ns"], Value::Null);
    assert_eq!(json[0]["mtu_bytes"], 9000);
}
