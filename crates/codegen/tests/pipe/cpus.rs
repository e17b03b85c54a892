//! The CPUs that this one can be.

use ashway_codegen::pipe::{Cpu, Isa};
use ashway_rig::skip;

use super::native;

/// What this CPU can do, and the same with more and more masked off. Empty
/// without AVX2; the tests then say so.
///
/// With `PIPE_WIDE` only those with vectors of 512 bits, which there must be: for an
/// emulator that has them (`cargo xtask avx512`).
pub(crate) fn cpus() -> Vec<Cpu> {
    let Some(here) = native::cpu() else {
        skip::skip_part(skip::Cpu::Avx2);
        return Vec::new();
    };
    let wide = std::env::var_os("PIPE_WIDE").is_some();
    assert!(!wide || here.isa == Isa::Avx512, "{here:?}");
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
        if !cpus.contains(&cpu) && (cpu.isa == Isa::Avx512 || !wide) {
            cpus.push(cpu);
        }
    }
    cpus
}
