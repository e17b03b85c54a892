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
        ("attach = 'pcap'\nread = 'src'", "missing_file", 3),
        ("attach = 'pcap'\nwrite = 'src'", "missing_file", 3),
        (
            "attach = 'pcap'\nwrite = 'nowhere/out.pcap'",
            "missing_file",
            3,
        ),
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

#[test]
fn what_one_interface_writes_is_no_others() {
    let folder = std::env::temp_dir().join(format!("ashway-captures-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [input, link, output] = ["in.pcap", "link.pcap", "out.pcap"].map(|it| folder.join(it));
    std::fs::write(&input, "").unwrap();
    std::fs::hard_link(&input, &link).unwrap();
    let round = folder
        .join("..")
        .join(folder.file_name().unwrap())
        .join("out.pcap");
    let codes = |first: &str, second: &str| {
        let text = format!(
            "[iface.c0]\nattach = 'pcap'\n{first}\n[iface.c1]\nattach = 'pcap'\n{second}\n"
        );
        let errors = read(&text).err();
        let codes = errors.iter().flat_map(Diagnostics::by_line);
        codes.map(|(line, it)| (it.code, line)).collect::<Vec<_>>()
    };
    let key = |key: &str, file: &std::path::Path| format!("{key} = '{}'", file.display());
    let wrong = vec![("contradiction", 4)];
    let (reads, writes) = (key("read", &input), key("write", &output));
    assert_eq!(codes(&reads, &key("write", &link)), wrong, "a hard link");
    assert_eq!(codes(&key("write", &input), &reads), wrong);
    assert_eq!(
        codes(&writes, &key("write", &round)),
        wrong,
        "another way to say it"
    );
    assert_eq!(codes(&reads, &reads), [], "two may read one");
    assert_eq!(codes(&reads, &writes), []);
    let null = "write = '/dev/null'";
    assert_eq!(codes(null, null), []);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_handler_for_each_cpu_is_at_no_pattern() {
    let text = "[iface.'v*']\n[handler.h]\nfile = 'Cargo.toml'\ninstances = 'per-cpu'\n\
                [path.p]\niface = 'v*'\nmatch = 'udp'\nhandler = 'h'\n";
    let refused = read(text).unwrap_err();
    let said = refused.list().iter().map(|one| one.message.as_str());
    let said: Vec<_> = said.collect();
    assert!(
        said.iter().any(|it| it.contains("at the pattern `v*`")),
        "{said:?}"
    );
}
