//! Every length up to 9,000 bytes, one by one, in every form: gauges of all widths one behind the
//! other, so that whole words, partial ones and the tails of lanes fall on each other at each
//! place (ASH-41).

use ashway_codegen::pipe::{List, Options, Portable, builtin, compile, interpret, parse};

use super::native::Pipes;
use super::random::Random;

const LONGEST: usize = 9_000;

fn lists() -> Vec<List> {
    let mut all: Vec<List> = [
        "cksum16 | xor(0xdeadbeef) | bswap64",
        "crc32 | add16(0x8001) | sum32 | max64",
        "adler32 | bswap16 | count8(0)",
    ]
    .into_iter()
    .map(|text| parse(text).unwrap())
    .collect();
    // The paper's: a checksum by 16 bits, and a cipher by its own words.
    let mut cipher = parse("cksum16").unwrap();
    cipher
        .push(builtin::chacha20([7; 32], [9; 12], u32::MAX - 3))
        .unwrap();
    all.push(cipher);
    all
}

#[test]
fn every_length_up_to_nine_thousand_is_as_its_pipes_one_by_one() {
    let data = Random(9).bytes(LONGEST);
    for list in lists() {
        let mut portable = Portable::new(&list);
        let compiled: Vec<Pipes> = super::cpus()
            .into_iter()
            .map(|cpu| Pipes::map(compile(&list, cpu, Options::default()).unwrap()).unwrap())
            .collect();
        let alone: Vec<List> = list.pipes().iter().map(|one| alone(&one.pipe)).collect();
        let mut to = vec![0; LONGEST];
        for len in 0..=LONGEST {
            let data = &data[..len];
            // Unfused: a pass for each pipe.
            let mut wanted = (Vec::new(), data.to_vec());
            for one in &alone {
                let mut registers = one.initial();
                interpret(one, &mut registers, &mut wanted.1);
                wanted.0.extend(registers);
            }
            let mut given = (list.initial(), data.to_vec());
            portable.run_in_place(&mut given.0, &mut given.1);
            assert!(given == wanted, "portable, {len} bytes");
            for pipes in &compiled {
                let mut registers = list.initial();
                pipes.run(&mut registers, data, &mut to[..len], len);
                let cpu = pipes.native().cpu();
                assert!(registers == wanted.0, "{cpu:?}, {len} bytes: registers");
                assert!(to[..len] == wanted.1, "{cpu:?}, {len} bytes: data");
            }
        }
    }
}

fn alone(pipe: &ashway_codegen::pipe::Pipe) -> List {
    let mut list = List::new();
    list.push(pipe.clone()).unwrap();
    list
}
