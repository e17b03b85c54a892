//! What a lookup costs from one filter to a hundred thousand, in the user tier.
//!
//! ```text
//! cargo run --release -p ashway-codegen --example demux_speed
//! ```

#![allow(clippy::print_stdout, reason = "a program's output")]
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::hint::black_box;
use std::time::Instant;

use ashway_codegen::demux::{Table, parse};
use ashway_wire::Headers;

fn main() {
    let text = |i: u32| {
        let [_, a, b, c] = i.to_be_bytes();
        format!("ip and udp dst port 53 and src host 10.{a}.{b}.{c}")
    };
    let frame = |i: u32| {
        let mut frame = [0_u8; 42];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 17;
        frame[26..30].copy_from_slice(&(0x0a00_0000 | i).to_be_bytes());
        frame[36..38].copy_from_slice(&53_u16.to_be_bytes());
        frame
    };
    println!(
        "{:>8} {:>8} {:>12} {:>12} {:>14}",
        "filters", "shapes", "hot ns", "random ns", "insertion ns"
    );
    for count in [1, 10, 100, 1_000, 10_000, 100_000] {
        let mut table = Table::default();
        let filters: Vec<_> = (0..count).map(|i| parse(&text(i)).unwrap()).collect();
        let started = Instant::now();
        for (i, filter) in (0..).zip(&filters) {
            table.insert(filter, i).unwrap();
        }
        let insertion = started.elapsed() / count;
        let frames: Vec<[u8; 42]> = (0..65_536_u32)
            .map(|i| frame(i.wrapping_mul(2_654_435_761) % count))
            .collect();
        // With the walk over the headers, which is part of finding.
        let time = |index: &dyn Fn(usize) -> usize| {
            let rounds = 1_000_000;
            let started = Instant::now();
            for i in 0..rounds {
                let frame = black_box(&frames[index(i)]);
                assert!(table.find(&Headers::parse(frame), frame).is_some());
            }
            started.elapsed().as_nanos() as f64 / rounds as f64
        };
        println!(
            "{count:>8} {:>8} {:>12.1} {:>12.1} {:>14}",
            table.shapes().len(),
            time(&|_| 0),
            time(&|i| i % frames.len()),
            insertion.as_nanos()
        );
    }
    println!("\n{:>8} {:>12}", "shapes", "last ns");
    for shapes in [1, 4, 16, 64] {
        let mut table = Table::default();
        table.insert(&parse("udp").unwrap(), 0).unwrap();
        for bits in 1..shapes {
            // Networks inside each other; from 32 on others, with a port.
            let (net, port) = if bits < 32 {
                ("128.0.0.0", "")
            } else {
                ("0.0.0.0", " and dst port 9")
            };
            let text = format!("ip and udp and src net {net}/{}{port}", 1 + bits % 32);
            table.insert(&parse(&text).unwrap(), bits).unwrap();
        }
        let frame = frame(1);
        let headers = Headers::parse(&frame);
        let started = Instant::now();
        for _ in 0..1_000_000 {
            assert_eq!(black_box(&table).find(&headers, black_box(&frame)), Some(0));
        }
        println!(
            "{:>8} {:>12.1}",
            table.shapes().len(),
            started.elapsed().as_nanos() as f64 / 1e6
        );
    }
}
