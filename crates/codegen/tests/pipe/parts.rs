//! Data in several buffers is one message.

use ashway_codegen::pipe::{Isa, Options, Strategy, compile, interpret, parse};
use ashway_rig::skip;

use super::native::Pipes;
use super::random::{self, Random};

#[test]
fn buffers_of_any_length_are_one_message() {
    let mut random = Random(4);
    for _ in 0..100 {
        let list = random::list(&mut random);
        for cpu in super::cpus() {
            let pipes = Pipes::map(compile(&list, cpu, Options::default()).unwrap()).unwrap();
            let len = random.length();
            let data = random.bytes(len);
            let mut wanted = (data.clone(), list.initial());
            interpret(&list, &mut wanted.1, &mut wanted.0);
            let mut parts = Vec::new();
            let mut rest = &data[..];
            while !rest.is_empty() {
                let (part, later) = rest.split_at(random.below(rest.len().min(200)) + 1);
                parts.push(part);
                rest = later;
            }
            let mut given = (vec![0; data.len()], list.initial());
            pipes.run_parts(&mut given.1, &parts, &mut given.0);
            assert_eq!(given, wanted, "{:?}", parts.iter().map(|part| part.len()));
        }
    }
}

#[test]
fn in_place_a_list_that_modifies_nothing_writes_nothing() {
    let list = parse("cksum16 | crc32").unwrap();
    for cpu in super::cpus() {
        let options = Options {
            in_place: true,
            ..Options::default()
        };
        let pipes = Pipes::map(compile(&list, cpu, options).unwrap()).unwrap();
        assert!(!pipes.native().writes());
        let data = Random(5).bytes(1000);
        let mut copy = data.clone();
        let mut wanted = list.initial();
        interpret(&list, &mut wanted, &mut copy);
        let mut registers = list.initial();
        // No room at all at the destination.
        pipes.run(&mut registers, &data, &mut [], data.len());
        assert_eq!(registers, wanted);
    }
}

#[test]
fn large_copies_store_past_the_caches_and_are_copies() {
    let list = parse("cksum16 | bswap32").unwrap();
    let data = Random(6).bytes((5 << 20) + 77);
    let mut wanted = (data.clone(), list.initial());
    interpret(&list, &mut wanted.1, &mut wanted.0);
    for cpu in super::cpus() {
        let pipes = Pipes::map(compile(&list, cpu, Options::default()).unwrap()).unwrap();
        let mut room = vec![0; data.len() + 64];
        let start = room.as_ptr().align_offset(64);
        let mut registers = list.initial();
        let to = &mut room[start..start + data.len()];
        pipes.run(&mut registers, &data, to, data.len());
        assert!(to == &wanted.0[..] && registers == wanted.1, "{cpu:?}");
    }
}

#[test]
fn the_attribute_decides_the_way() {
    let list = parse("copy | cksum16 | crc32 | adler32 | alaw2ulaw").unwrap();
    for cpu in super::cpus() {
        let native = compile(&list, cpu, Options::default()).unwrap();
        let strategies: Vec<Strategy> = native.steps().iter().map(|step| step.strategy).collect();
        let crc = if cpu.carryless || cpu.carryless_wide {
            Strategy::Folded
        } else {
            Strategy::InOrder
        };
        assert_eq!(
            strategies,
            [
                Strategy::Nothing,
                Strategy::Lanes,
                crc,
                Strategy::Folded,
                Strategy::Lanes
            ],
            "{cpu:?}"
        );
    }
}

#[test]
fn code_grows_with_the_list_and_not_faster() {
    let Some(cpu) = super::cpus().into_iter().find(|cpu| cpu.isa == Isa::Avx512) else {
        skip::skip(skip::Cpu::Avx512);
        return;
    };
    let bytes = |pipes: usize| {
        let list = parse(&vec!["cksum16"; pipes].join("|")).unwrap();
        compile(&list, cpu, Options::default())
            .unwrap()
            .code()
            .len()
    };
    let (few, many) = (bytes(4), bytes(32));
    assert!(many < few * 8, "{few} bytes for 4, {many} for 32");
}
