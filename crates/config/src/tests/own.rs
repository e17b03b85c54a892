//! Interfaces that the node makes itself.

use super::*;

fn own(keys: &str) -> Result<OwnIface, Vec<(&'static str, usize)>> {
    let text = with("", "").replace("[iface.veth0]\n", &format!("[iface.veth0]\n{keys}\n"));
    match read(&text) {
        Ok(config) => Ok(config.ifaces[0].own.clone()),
        Err(errors) => Err(errors.by_line().map(|(line, it)| (it.code, line)).collect()),
    }
}

#[test]
fn each_key_is_for_its_own_kind_of_interface() {
    let keys = [
        "mac = '02:00:00:00:00:01'",
        "read = 'Cargo.toml'",
        "write = 'w'",
        "pace = 'full'",
        "peer = 'x'",
    ];
    for (attach, taken) in [
        ("tap", &keys[..1]),
        ("pcap", &keys[..4]),
        ("packet", &[]),
        ("auto", &[]),
    ] {
        for key in keys {
            let read = own(&format!("attach = '{attach}'\nread = 'Cargo.toml'\n{key}"));
            let read = if key.starts_with("read") || attach != "pcap" {
                own(&format!("attach = '{attach}'\n{key}"))
            } else {
                read
            };
            assert_eq!(
                read.is_ok(),
                taken.contains(&key),
                "{attach}, {key}: {read:?}"
            );
        }
    }
    let all = own(&format!("attach = 'pcap'\n{}", keys[..4].join("\n"))).unwrap();
    assert_eq!(all.mac, Some([2, 0, 0, 0, 0, 1]));
    assert_eq!(all.pace, ReplayPace::Full);
    let [read, write] = [&all.read, &all.write].map(|file| file.as_deref().unwrap());
    assert!(read.is_absolute() && read.ends_with("Cargo.toml") && write.is_absolute());
    assert_eq!(
        own("attach = 'pcap'\nread = 'Cargo.toml'").unwrap().pace,
        ReplayPace::Capture
    );
}

#[test]
fn what_cannot_be_is_told_at_its_line() {
    for (keys, code, line) in [
        ("attach = 'pcap'", "missing_key", 1),
        ("attach = 'pcap'\nread = 'nowhere'", "missing_file", 3),
        (
            "attach = 'pcap'\nread = 'Cargo.toml'\nwrite = 'src/../Cargo.toml'",
            "contradiction",
            4,
        ),
        (
            "attach = 'pcap'\nwrite = 'w'\npace = 'slow'",
            "bad_value",
            4,
        ),
        ("attach = 'tap'\nmac = '01:00:00:00:00:01'", "bad_value", 3),
        ("attach = 'tap'\nmac = '00:00:00:00:00:00'", "bad_value", 3),
        ("attach = 'tap'\nmac = 'x'", "bad_value", 3),
        ("peer = 'x'", "contradiction", 2),
    ] {
        let errors = own(keys).unwrap_err();
        assert_eq!(errors[0], (code, line), "{keys}: {errors:?}");
    }
    // There is no kernel tier on any of them.
    let text =
        with("tier = 'kernel'", "").replace("[iface.veth0]", "[iface.veth0]\nattach = 'tap'");
    let errors = read(&text).unwrap_err();
    let message = &errors.list()[0].message;
    assert_eq!(
        message,
        "there is no kernel tier on `veth0`: it has `attach = \"tap\"`"
    );
}

#[test]
fn a_link_in_memory_has_two_ends() {
    let memory = |ifaces: &[(&str, &str)]| {
        let section = |(name, peer): &(&str, &str)| match *peer {
            "" => format!("[iface.{name}]\nattach = 'memory'\n"),
            peer => format!("[iface.{name}]\nattach = 'memory'\npeer = '{peer}'\n"),
        };
        let sections: String = ifaces.iter().map(section).collect();
        codes(&(sections + "[iface.v0]\n"))
    };
    let good: [&[_]; 4] = [
        &[("a", "")],
        &[("a", "b"), ("b", "")],
        &[("a", "b"), ("b", "a")],
        &[("a", "b"), ("b", ""), ("c", "")],
    ];
    for ifaces in good {
        assert_eq!(memory(ifaces), Vec::<&str>::new(), "{ifaces:?}");
    }
    let bad: [&[_]; 6] = [
        &[("a", "a")],
        &[("a", "x")],
        &[("a", "v0")],
        &[("a", "b"), ("b", "c"), ("c", "b")],
        &[("a", "b"), ("b", ""), ("c", "b")],
        &[("a", "b"), ("b", "c"), ("c", "a")],
    ];
    for ifaces in bad {
        assert!(memory(ifaces).contains(&"contradiction"), "{ifaces:?}");
    }
}
