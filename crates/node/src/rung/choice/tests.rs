use ashway_kernel::XdpFeatures;
use ashway_kernel::iface::Offloads;

use super::*;

/// What an interface is, as far as it matters.
fn iface(name: &str, driver: &str, kind: &str, xdp: Option<u64>) -> Iface {
    Iface {
        name: name.to_owned(),
        ifindex: 7,
        mac: [2, 0, 0, 0, 0, 11],
        mtu: 1500,
        driver: driver.to_owned(),
        kind: kind.to_owned(),
        xdp_features: xdp.map(XdpFeatures),
        rx_queues: 2,
        tx_queues: 2,
        is_veth: driver == "veth",
        up: true,
        offloads: Offloads {
            tso: true,
            gro: true,
            lro: false,
        },
    }
}

fn veth() -> Iface {
    iface("b0", "veth", "veth", Some(0b10_0011))
}

fn card() -> Iface {
    iface("eth0", "ice", "", Some(0b111_1111))
}

/// What `auto` alone on a node that can do everything makes of it.
fn alone(iface: &Iface) -> (Rung, String) {
    let mut choices = choose(&Means::default(), &[(Attach::Auto, iface)]);
    let choice = choices.remove(0);
    (choice.rung, choice.because.expect("auto has a reason"))
}

#[test]
fn cards_whose_driver_does_it_for_nothing_are_taken_by_xdp() {
    assert_eq!(
        alone(&card()),
        (
            Rung::Native,
            "its driver (ice) does XDP, and the host keeps its offloads".to_owned()
        )
    );
    for (what, other, says) in [
        (
            "LRO",
            Iface {
                offloads: Offloads {
                    lro: true,
                    ..card().offloads
                },
                ..card()
            },
            "its LRO",
        ),
        (
            "MTU",
            Iface {
                mtu: 9000,
                ..card()
            },
            "its MTU of 9000 bytes",
        ),
        (
            "no XDP",
            Iface {
                xdp_features: Some(XdpFeatures(0)),
                ..card()
            },
            "(ice) does not say",
        ),
        (
            "no redirect",
            Iface {
                xdp_features: Some(XdpFeatures(1)),
                ..card()
            },
            "(ice) does not",
        ),
        (
            "before 6.3",
            Iface {
                xdp_features: None,
                ..card()
            },
            "(ice) does not say",
        ),
        ("no driver", iface("x0", "", "", None), "no driver says"),
        (
            "virtio",
            iface("v0", "virtio_net", "", Some(0b111_1111)),
            "under XDP virtio_net",
        ),
    ] {
        let (rung, because) = alone(&other);
        assert_eq!(rung, Rung::Tcx, "{what}");
        assert!(because.contains(says), "{what}: {because}");
    }
}

#[test]
fn virtual_links_are_taken_at_tcx_whatever_they_say_of_xdp() {
    let (rung, because) = alone(&veth());
    assert_eq!(rung, Rung::Tcx);
    assert!(because.starts_with("it is a veth"), "{because}");
    for kind in ["bridge", "macvlan", "vxlan", "tun", "bond", "vlan"] {
        let (rung, because) = alone(&iface("x0", kind, kind, Some(0b11)));
        assert_eq!(rung, Rung::Tcx, "{kind}");
        assert!(because.contains(&format!("({kind})")), "{because}");
    }
}

#[test]
fn what_a_node_cannot_have_decides_first() {
    let (veth, card) = (veth(), card());
    let both = [(Attach::Auto, &veth), (Attach::Auto, &card)];
    let without = |means: Means| {
        let choices = choose(&means, &both);
        choices
            .into_iter()
            .map(|one| (one.rung, one.because.expect("auto")))
    };
    let no_programs = Some("XDP programs: EPERM".to_owned());
    let no_tcx = Some("TCX cannot be used (TCX: EINVAL)".to_owned());
    for (rung, because) in without(Means {
        no_programs,
        no_tcx: no_tcx.clone(),
    }) {
        assert_eq!(rung, Rung::Packet);
        assert!(because.contains("XDP programs: EPERM"), "{because}");
    }
    let choices: Vec<_> = without(Means {
        no_tcx,
        ..Means::default()
    })
    .collect();
    assert_eq!(choices[0].0, Rung::Native);
    assert_eq!(choices[0].1, "TCX cannot be used (TCX: EINVAL)");
    assert_eq!(choices[1].0, Rung::Native);
    assert!(choices[1].1.contains("its driver (ice)"), "{choices:?}");
}

#[test]
fn all_of_a_node_is_at_one_hook() {
    let (veth, card) = (veth(), card());
    let rungs = |ifaces: &[(Attach, &Iface)]| {
        let choices = choose(&Means::default(), ifaces);
        let rungs: Vec<_> = choices.iter().map(|one| one.rung).collect();
        (
            rungs,
            choices
                .into_iter()
                .find_map(|one| one.because)
                .unwrap_or_default(),
        )
    };
    let alone = bug::with(Bug::HookOfItsOwn, || {
        rungs(&[(Attach::Auto, &card), (Attach::Auto, &veth)])
    });
    assert_ne!(alone.0[0], alone.0[1]);
    // A veth takes a card along: TCX is there, too, and costs it nothing.
    let (both, because) = rungs(&[(Attach::Auto, &card), (Attach::Auto, &veth)]);
    assert_eq!(both, [Rung::Tcx; 2]);
    assert!(
        because.ends_with(
            "`b0` is taken at TCX: it is a veth, where XDP ends the segmentation of its peer"
        ),
        "{because}"
    );
    // What was asked for is what there is.
    let (asked, because) = rungs(&[(Attach::Auto, &veth), (Attach::Xdp, &card)]);
    assert_eq!(asked, [Rung::Native; 2]);
    assert!(
        because.ends_with("and `eth0` has `attach = \"xdp\"`"),
        "{because}"
    );
    let (asked, _) = rungs(&[(Attach::Auto, &veth), (Attach::Generic, &card)]);
    assert_eq!(asked, [Rung::Native, Rung::Generic]);
    let (asked, because) = rungs(&[(Attach::Tcx, &veth), (Attach::Auto, &card)]);
    assert_eq!(asked, [Rung::Tcx; 2]);
    assert!(
        because.ends_with("and `b0` has `attach = \"tcx\"`"),
        "{because}"
    );
    // Packet sockets are no hook.
    let (asked, _) = rungs(&[(Attach::Packet, &veth), (Attach::Auto, &card)]);
    assert_eq!(asked, [Rung::Packet, Rung::Native]);
}

/// What a configuration says that its node cannot have at TCX.
fn no_tcx(text: &str) -> Option<String> {
    let able = Probe {
        release: String::new(),
        features: Feature::ALL.map(|it| (it, State::Ok)).into(),
        capabilities: Vec::new(),
        unprivileged_bpf_disabled: None,
    };
    // Where there is a file to name.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/test.toml");
    let file = std::path::Path::new(file);
    let config = ashway_config::parse(file, text.as_bytes()).expect("it is right");
    Means::of(&able).of_node(&config).no_tcx
}

#[test]
fn a_configuration_can_keep_its_node_from_tcx() {
    let handler = "[iface.b0]\n[handler.echo]\nfile = 'Cargo.toml'\n";
    let path = "[path.echo]\niface = 'b0'\nhandler = 'echo'\n";
    let with = |handler_also: &str, path_also: &str| {
        no_tcx(&format!("{handler}{handler_also}{path}{path_also}"))
    };
    assert_eq!(with("", "match = 'udp'\n"), None);
    // TCP comes in segments, which are taken apart.
    for meets in [
        "match = 'tcp'\nlayer = 'ip'\n",
        "match = 'ip'\nlayer = 'eth'\n",
    ] {
        assert_eq!(with("", meets), None);
    }
    let because = with("memory = 'array'\n", "match = 'udp'\n").expect("arrays");
    assert!(
        because.contains("`echo` has `memory = \"array\"`"),
        "{because}"
    );
}
