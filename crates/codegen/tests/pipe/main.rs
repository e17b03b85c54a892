//! Pipes mean the same in every way of running them.
//!
//! Native code runs here as it does in a handler: mapped by the same file.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod evil;
mod kernel;
mod known;
#[allow(dead_code, reason = "the handler's, whole")]
#[allow(unreachable_pub, reason = "the handler's, where it is public")]
#[path = "../../../handler/src/native.rs"]
mod native;
mod parts;
mod plan;
mod random;
mod same;
mod user;

use ashway_codegen::pipe::{Cpu, Isa};

/// What this CPU can do, and the same with more and more masked off. Empty
/// without AVX2; the tests then say so.
fn cpus() -> Vec<Cpu> {
    let Some(here) = native::cpu() else {
        eprintln!("no AVX2 here: the portable form alone is tested");
        return Vec::new();
    };
    let narrow = Cpu {
        isa: Isa::Avx2,
        permute_bytes: false,
        ..here
    };
    let masked = [
        here,
        Cpu {
            permute_bytes: false,
            carryless_wide: false,
            aes_wide: false,
            ..here
        },
        narrow,
        Cpu {
            carryless_wide: false,
            aes_wide: false,
            ..narrow
        },
        Cpu {
            carryless: false,
            carryless_wide: false,
            ..narrow
        },
    ];
    let mut cpus: Vec<Cpu> = Vec::new();
    for cpu in masked {
        if !cpus.contains(&cpu) {
            cpus.push(cpu);
        }
    }
    cpus
}
