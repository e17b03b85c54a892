//! `ashway pipe bench`.

use std::time::Instant;

use ashway_codegen::pipe::{List, Native, Portable};
use ashway_handler::native::Pipes;
use clap::Args;
use serde_json::json;

use super::Expression;
use crate::face::Face;
use crate::failure::{Exit, Failure};
use crate::table;

/// Measure a list beside its pipes one after the other
///
/// The same data each time, in the caches. Medians of alternating rounds; the
/// machine's other work is among them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway pipe bench \"cksum16 | bswap32 | xor(1)\" -j")]
pub(crate) struct Bench {
    #[command(flatten)]
    expression: Expression,
}

/// Sizes of data, in bytes: the smallest message, a full frame, a page and more.
const SIZES: [usize; 6] = [64, 256, 1472, 4096, 16_384, 65_536];

/// Rounds of each size and way.
const ROUNDS: usize = 31;

/// Bytes of a round.
const ROUND_BYTES: usize = 1 << 20;

impl Bench {
    pub(super) fn run(self, face: Face) -> Result<(), Failure> {
        let list = self.expression.list()?;
        let mut fused = Ready::new(&list, self.expression.native(&list)?)?;
        let mut portable = Ready::new(&list, None)?;
        let mut separate = Vec::new();
        for placed in list.pipes() {
            let mut alone = List::new();
            alone
                .push(placed.pipe.clone())
                .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
            let ready = Ready::new(&alone, self.expression.native(&alone)?)?;
            separate.push((ready, alone.initial()));
        }
        let mut measured = Vec::new();
        for size in SIZES {
            let source: Vec<u8> = (0..size).map(|at| (at * 31) as u8).collect();
            let mut destination = vec![0; size];
            let mut registers = list.initial();
            let mut nanos = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                nanos[0].push(time(size, || {
                    fused.run(&mut registers, &source, &mut destination);
                }));
                nanos[1].push(time(size, || {
                    for (at, (ready, registers)) in separate.iter_mut().enumerate() {
                        // The first one copies, the others work on the copy.
                        if at == 0 {
                            ready.run(registers, &source, &mut destination);
                        } else if let Ready::Native(pipes) = ready {
                            pipes.run_in_place(registers, &mut destination);
                        } else if let Ready::Portable(portable) = ready {
                            portable.run_in_place(registers, &mut destination);
                        }
                    }
                }));
                nanos[2].push(time(size, || {
                    portable.run(&mut registers, &source, &mut destination);
                }));
            }
            let medians = nanos.map(|mut all| {
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            });
            measured.push((size, medians));
        }
        let rows = measured.iter().map(|(size, [fused, separate, portable])| {
            json!({
                "bytes": size,
                "fused_ns": fused,
                "separate_ns": separate,
                "portable_ns": portable,
                "separate_over_fused": separate / fused,
            })
        });
        let document = json!({ "pipes": self.expression.pipes, "sizes": rows.collect::<Vec<_>>() });
        face.show(&document, || {
            let rows: Vec<Vec<String>> = measured
                .iter()
                .map(|(size, [fused, separate, portable])| {
                    vec![
                        size.to_string(),
                        format!("{fused:.0}"),
                        format!("{separate:.0}"),
                        format!("{portable:.0}"),
                        format!("{:.2}", separate / fused),
                    ]
                })
                .collect();
            let header = ["bytes", "fused ns", "separate ns", "portable ns", "ratio"];
            table::render(&header, &rows)
        })
    }
}

/// Nanoseconds of one call on `size` bytes.
fn time(size: usize, mut call: impl FnMut()) -> f64 {
    let calls = (ROUND_BYTES / size).clamp(16, 2048);
    let begun = Instant::now();
    for _ in 0..calls {
        call();
    }
    begun.elapsed().as_secs_f64() * 1e9 / calls as f64
}

/// A list made ready in the form that was asked for.
enum Ready {
    Native(Pipes),
    Portable(Portable),
}

impl Ready {
    fn new(list: &List, native: Option<Native>) -> Result<Self, Failure> {
        match native {
            None => Ok(Self::Portable(Portable::new(list))),
            Some(native) => Pipes::map(native).map(Self::Native).map_err(|error| {
                Failure::new(Exit::Failed, error.to_string()).hint("try `--form portable`")
            }),
        }
    }

    fn run(&mut self, registers: &mut [u64], source: &[u8], destination: &mut [u8]) {
        match self {
            Self::Native(pipes) => pipes.run(registers, source, destination, source.len()),
            Self::Portable(portable) => portable.run(registers, source, destination),
        }
    }
}
