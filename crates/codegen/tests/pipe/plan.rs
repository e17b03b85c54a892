//! Lists that are cut into several loops, and those that are not.

use ashway_codegen::pipe::{Plan, interpret, parse, plan};

use super::native::Passes;
use super::random::{self, Random};

#[test]
fn a_list_in_several_loops_means_the_same() {
    let mut random = Random(12);
    for _ in 0..300 {
        let list = random::list(&mut random);
        for cpu in super::cpus() {
            let planned = plan(&list, cpu, random.length());
            // Also cuts that nobody would plan.
            let mut loops = Vec::new();
            let mut begin = 0;
            while begin < list.pipes().len() {
                let end = begin + 1 + random.below(list.pipes().len() - begin);
                loops.push(begin..end);
                begin = end;
            }
            let cut = Plan {
                loops,
                ..planned.clone()
            };
            for plan in [planned, cut].iter().filter(|plan| !plan.loops.is_empty()) {
                // AES without AES-NI has no loop.
                let Ok(passes) = Passes::map(&list, cpu, plan) else {
                    continue;
                };
                let len = random.length();
                let data = random.bytes(len);
                let mut wanted = (list.initial(), data.clone());
                interpret(&list, &mut wanted.0, &mut wanted.1);
                let mut given = (list.initial(), vec![0; len]);
                passes.run(&mut given.0, &data, &mut given.1);
                assert!(
                    given == wanted,
                    "{:?} of {:?}",
                    plan.loops,
                    list.register_names()
                );
            }
        }
    }
    // And one that is cut because that is faster.
    let text = ["sum8"; 32].join(" | ");
    let list = parse(&text).unwrap();
    let data = random.bytes(1472);
    for cpu in super::cpus() {
        let plan = plan(&list, cpu, data.len());
        assert!(plan.loops.len() > 1, "{plan:?}");
        assert_eq!(plan.loops.last().map(|last| last.end), Some(32), "{plan:?}");
        let passes = Passes::map(&list, cpu, &plan).unwrap();
        let (mut registers, mut to) = (list.initial(), vec![0; data.len()]);
        passes.run(&mut registers, &data, &mut to);
        let sum: u64 = data.iter().map(|byte| u64::from(*byte)).sum();
        assert!(to == data && registers == vec![sum; 32]);
    }
}

#[test]
fn a_list_is_cut_where_its_sums_have_no_registers_and_not_before() {
    for cpu in super::cpus() {
        let short = parse("cksum16 | bswap32 | xor(0xdeadbeef)").unwrap();
        for bytes in [64, 1472, 4096, 65_536, 64 << 20] {
            let one = plan(&short, cpu, bytes);
            assert_eq!(one.loops, vec![0..3], "{bytes} bytes: {one:?}");
            assert!(one.planned_ns <= one.separate_ns, "{one:?}");
        }
        let long = parse(&["sum8"; 32].join(" | ")).unwrap();
        let cut = plan(&long, cpu, 4096);
        assert!(cut.planned_ns < cut.fused_ns, "{cut:?}");
        // The empty list is a copy: one loop.
        assert_eq!(plan(&parse("copy").unwrap(), cpu, 64).loops, vec![0..1]);
    }
}
