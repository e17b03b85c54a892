//! `ashway pipe calibrate`: the costs by which lists are cut into loops.
//!
//! Each figure is a difference of two lists' times, or of one list's at two sizes; the
//! best of many runs, since what disturbs one only ever adds.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context, Result};
use ashway_codegen::pipe::{
    self, Binary, Builder, CHUNK_BYTES, Costs, Cpu, Gauge, Isa, Line, List, Options, compile,
};
use ashway_handler::native::{self, Pipes};

/// A size in the first cache, one in the second, one in memory.
const NEAR: usize = 4096;
const FAR: usize = 128 << 10;
const MEMORY: usize = 32 << 20;

/// Where streaming may begin to be faster.
const STREAMING: [usize; 2] = [256 << 10, 64 << 20];

/// Vectors that stay in registers, and as many more that do not.
const RESIDENT: [(Isa, usize); 2] = [(Isa::Avx2, 6), (Isa::Avx512, 16)];

/// `crates/codegen/src/pipe/cost/table.rs` for this machine. Some ten seconds.
///
/// # Errors
///
/// If this CPU lacks AVX2, AVX-512 or AES-NI.
pub fn calibrate() -> Result<String> {
    let here = native::cpu()
        .filter(|cpu| cpu.isa == Isa::Avx512)
        .context("this CPU has no AVX-512: both widths are measured on one machine")?;
    let mut text = "//! Made by `ashway pipe calibrate`.\n\nuse super::Costs;\n".to_owned();
    for (name, isa) in [("AVX2", Isa::Avx2), ("AVX512", Isa::Avx512)] {
        let cpu = Cpu {
            isa,
            permute_bytes: here.permute_bytes && isa == Isa::Avx512,
            ..here
        };
        let costs = costs(cpu)?;
        let line = |[call, chunk]: Line| format!("[{call:.1}, {chunk:.2}]");
        let [near, far, memory] = costs.moves;
        let _ = write!(
            text,
            "\npub(super) const {name}: Costs = Costs {{
    call: {:.1},
    moves: [{near:.2}, {far:.2}, {memory:.2}],
    operator: {:.2},
    reduction: {},
    spill: {:.2},
    crc: {},
    adler: {},
    chacha20: {},
    aes: {},
    in_order: {:.2},
    streaming_bytes: {} << 10,
}};\n",
            costs.call,
            costs.operator,
            line(costs.reduction),
            costs.spill,
            line(costs.crc),
            line(costs.adler),
            line(costs.chacha20),
            line(costs.aes),
            costs.in_order,
            costs.streaming_bytes >> 10,
        );
    }
    Ok(text)
}

fn costs(cpu: Cpu) -> Result<Costs> {
    let fit = |text: &str| line(&pipe::parse(text)?, cpu, NEAR);
    let [call, near] = fit("copy")?;
    let less = |[one, chunk]: Line| [(one - call).max(0.0), (chunk - near).max(0.0)];
    let over = |text: &str| Ok::<_, anyhow::Error>(less(fit(text)?));
    let chunks = |bytes: usize| (bytes / CHUNK_BYTES) as f64;
    let copy = pipe::parse("copy")?;
    let operators = over("xor32(1) | add32(3) | xor32(5) | add32(7)")?[1] / 4.0;
    let reduction = over("sum64 | sum64 | sum64 | sum64")?.map(|ns| ns / 4.0);
    // Xors, since a loop of them has one operator for each vector that is kept.
    let kept = RESIDENT
        .iter()
        .find(|(isa, _)| *isa == cpu.isa)
        .map_or(0, |(_, kept)| *kept);
    let many = |count: usize| vec!["sum64"; count].join(" | ");
    let (all, half) = (over(&many(2 * kept))?[1], over(&many(kept))?[1]);
    let beyond = kept.max(1) as f64;
    let spill = ((all - half) / beyond - reduction[1]).max(0.0);
    // A cipher's call is a KiB.
    let cipher = |text: &str| -> Result<Line> { Ok(less(line(&pipe::parse(text)?, cpu, 1024)?)) };
    Ok(Costs {
        call,
        moves: [
            near,
            best(&copy, cpu, FAR)? / chunks(FAR),
            best(&copy, cpu, MEMORY)? / chunks(MEMORY),
        ],
        operator: operators,
        reduction,
        spill,
        crc: over("crc32c")?,
        adler: over("adler32")?,
        chacha20: cipher(&format!(
            "chacha20({},{},1)",
            "0b".repeat(32),
            "07".repeat(12)
        ))?,
        aes: cipher(&format!("aesctr({},{})", "0b".repeat(16), "07".repeat(16)))?,
        in_order: less(line(&ordered()?, cpu, NEAR)?)[1] / (3.0 * chunks_words()),
        streaming_bytes: streaming(&copy, cpu)?,
    })
}

/// The least size from which on a copy is faster past the caches, at it and all that
/// were measured above.
fn streaming(copy: &List, cpu: Cpu) -> Result<usize> {
    let mut from = STREAMING[1];
    let mut bytes = STREAMING[1];
    while bytes >= STREAMING[0] {
        let past = best_from(copy, cpu, bytes, 0)?;
        if past >= best_from(copy, cpu, bytes, usize::MAX)? {
            break;
        }
        (from, bytes) = (bytes, bytes / 2);
    }
    Ok(from)
}

/// Words of 32 bits in a chunk.
fn chunks_words() -> f64 {
    (CHUNK_BYTES / Gauge::Bits32.bytes()) as f64
}

/// Two operators and an update of each word, in order.
fn ordered() -> Result<List> {
    let mut body = Builder::new("chain", Gauge::Bits32);
    let last = body.register("last", 1);
    let (word, before) = (body.input(), body.read(last));
    let sum = body.binary(Binary::Add, word, before);
    let mixed = body.binary(Binary::Xor, sum, word);
    body.set(last, sum);
    let mut list = List::new();
    list.push(body.finish(mixed)?)?;
    Ok(list)
}

/// What a list takes for a call without data, and for each chunk up to `bytes`.
fn line(list: &List, cpu: Cpu, bytes: usize) -> Result<Line> {
    let (one, all) = (best(list, cpu, CHUNK_BYTES)?, best(list, cpu, bytes)?);
    let chunk = (all - one) / ((bytes / CHUNK_BYTES) as f64 - 1.0);
    Ok([(one - chunk).max(0.0), chunk])
}

fn aligned(room: &mut [u8], bytes: usize) -> &mut [u8] {
    let start = room.as_ptr().align_offset(64);
    &mut room[start..start + bytes]
}

/// The best of many runs over `bytes` bytes, ns.
fn best(list: &List, cpu: Cpu, bytes: usize) -> Result<f64> {
    best_from(list, cpu, bytes, pipe::streaming_bytes(cpu.isa))
}

/// The same, with stores past the caches from `streaming` bytes on.
fn best_from(list: &List, cpu: Cpu, bytes: usize, streaming: usize) -> Result<f64> {
    let pipes = Pipes::map(compile(list, cpu, Options::default())?)?.stream_from(streaming);
    // Whole lines: what a chunk over two of them costs more, costs every list.
    let (mut source, mut destination) = (vec![0x5a; bytes + 64], vec![0; bytes + 64]);
    let source = aligned(&mut source, bytes);
    let destination = aligned(&mut destination, bytes);
    let mut registers = list.initial();
    let calls = ((1 << 16) / bytes).max(1);
    let batches = if bytes > 1 << 20 { 20 } else { 400 };
    let mut best = f64::INFINITY;
    for _ in 0..batches {
        let begun = Instant::now();
        for _ in 0..calls {
            pipes.run(&mut registers, source, destination, bytes);
        }
        best = best.min(begun.elapsed().as_secs_f64() * 1e9 / calls as f64);
    }
    Ok(best)
}
