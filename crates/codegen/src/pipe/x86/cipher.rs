//! Ciphers: the keystream is made before the loop, and data is xored with it.
//!
//! A list with a cipher takes pieces of [`STREAM_BYTES`] at most, for which the
//! keystream lies in the frame. Making it costs many times what a call costs.

use iced_x86::{Code, Register};

use super::super::cipher::{CHACHA_CONSTANTS, Cipher};
use super::asm::Arg;
use super::emit::{Emit, frame};
use super::{Isa, table};
use crate::bug::{self, Bug};

/// Most bytes of one call of a list with a cipher.
pub(in super::super) const STREAM_BYTES: usize = 1024;

/// What a cipher keeps during the loop.
pub(super) struct Keystream {
    /// In the frame: its keystream, and 64 bytes for its first row or counter.
    stream: i32,
    start: i32,
}

/// Finds room.
pub(super) fn keep(emit: &mut Emit<'_>) -> Keystream {
    Keystream {
        stream: emit.room(STREAM_BYTES),
        start: emit.room(64),
    }
}

/// One vector of data passes: `r8` is how many bytes have passed before the turn,
/// `offset` where this vector stands in it.
pub(super) fn chunk(emit: &mut Emit<'_>, kept: &Keystream, data: u8, offset: usize) {
    let stream = Arg::X(Register::RSP, Register::R8, kept.stream + offset as i32);
    emit.v3(table::XOR, data, data, stream);
}

/// Behind the loop: as many blocks on as were begun.
pub(super) fn epilogue(emit: &mut Emit<'_>, cipher: &Cipher, first: usize) {
    let (rax, eax) = (Arg::R(Register::RAX), Register::EAX);
    let block = cipher.block_bytes() as i32;
    let up = Arg::M(Register::RCX, block - 1);
    emit.asm.op(Code::Lea_r64_m, &[rax, up]);
    emit.asm.op(
        Code::Shr_rm64_imm8,
        &[rax, Arg::I(block.trailing_zeros() as i32)],
    );
    emit.asm
        .op(Code::Add_r64_rm64, &[rax, Emit::persistent(first)]);
    if matches!(cipher, Cipher::ChaCha20 { .. }) {
        emit.gpr2(Code::Mov_r32_rm32, eax, eax);
    }
    emit.asm
        .op(Code::Mov_rm64_r64, &[Emit::persistent(first), rax]);
}

/// Before the loop: keystream for all of the data. Uses `rax`, `rbx`, `r8`,
/// `r10`, `r11`, `r12`.
pub(super) fn prologue(emit: &mut Emit<'_>, cipher: &Cipher, first: usize, kept: &Keystream) {
    match cipher {
        Cipher::ChaCha20 { key, nonce } => chacha20(emit, key, nonce, first, kept),
        Cipher::AesCtr {
            round_keys,
            counter,
        } => aes(emit, round_keys, *counter, first, kept),
    }
}

/// Writes `turn` until `bytes` times turns are at least the length. `rbx` is where
/// the next keystream goes.
fn turns(emit: &mut Emit<'_>, kept: &Keystream, bytes: i32, turn: impl FnOnce(&mut Emit<'_>)) {
    let (rbx, r10) = (Arg::R(Register::RBX), Arg::R(Register::R10));
    let (again, done) = (emit.asm.label(), emit.asm.label());
    emit.asm.op(Code::Lea_r64_m, &[rbx, frame(kept.stream)]);
    emit.gpr2(Code::Mov_r64_rm64, Register::R10, Register::RCX);
    emit.gpr2(Code::Test_rm64_r64, Register::R10, Register::R10);
    emit.asm.jump(Code::Je_rel32_64, done);
    emit.asm.place(again);
    turn(emit);
    emit.asm.op(Code::Add_rm64_imm32, &[rbx, Arg::I(bytes)]);
    emit.asm.op(Code::Sub_rm64_imm32, &[r10, Arg::I(bytes)]);
    emit.asm.jump(Code::Jg_rel32_64, again);
    emit.asm.place(done);
}

/// Sets of rows that are computed side by side: their latencies overlap.
const SETS: u8 = 2;

/// Rows of `ChaCha20`'s state lie in vectors, one block in each 16 bytes. Rows a to
/// d of set s are registers 4 s to 4 s + 3; 8 is a temporary, 9 the first row d.
fn chacha20(emit: &mut Emit<'_>, key: &[u8; 32], nonce: &[u8; 12], first: usize, kept: &Keystream) {
    let lanes = emit.vector_bytes() / 16;
    let bytes = lanes * 64 * usize::from(SETS);
    let mut high = [0; 16];
    high[4..].copy_from_slice(nonce);
    let rows = [
        emit.asm.lanes(CHACHA_CONSTANTS),
        emit.asm.lanes(half(key, 0)),
        emit.asm.lanes(half(key, 16)),
    ];
    let nonce = emit.asm.lanes(high);
    // How far each block's counter is from the turn's.
    let steps: Vec<Arg> = (0..SETS)
        .map(|set| counters(emit, lanes, u32::from(set) * lanes as u32))
        .collect();
    let (eax, start) = (Arg::R(Register::EAX), frame(kept.start));
    emit.asm
        .op(Code::Mov_r32_rm32, &[eax, Emit::persistent(first)]);
    let xmm = Arg::R(Register::XMM8);
    emit.asm.op(Code::VEX_Vmovdqu_xmm_xmmm128, &[xmm, nonce]);
    emit.asm.op(Code::VEX_Vmovdqu_xmmm128_xmm, &[start, xmm]);
    turns(emit, kept, bytes as i32, |emit| {
        emit.asm.op(Code::Mov_rm32_r32, &[start, eax]);
        let d = emit.v(9);
        let broadcast = match emit.cpu.isa {
            Isa::Avx2 => Code::VEX_Vbroadcasti128_ymm_m128,
            Isa::Avx512 => Code::EVEX_Vbroadcasti32x4_zmm_k1z_m128,
        };
        emit.asm.op(broadcast, &[d, start]);
        for set in 0..SETS {
            for (row, from) in rows.iter().enumerate() {
                emit.load(set * 4 + row as u8, *from);
            }
            emit.v3(table::ADD[2], set * 4 + 3, 9, steps[usize::from(set)]);
        }
        let r8d = Arg::R(Register::R8D);
        let rounds = if bug::is(Bug::PipeCipherRounds) {
            9
        } else {
            10
        };
        emit.asm.op(Code::Mov_r32_imm32, &[r8d, Arg::I(rounds)]);
        let again = emit.asm.label();
        emit.asm.place(again);
        // Columns, then diagonals: rows are turned so that these are columns.
        for turned in [[0x39, 0x4e, 0x93], [0x93, 0x4e, 0x39]] {
            quarter(emit);
            for set in 0..SETS {
                for (row, order) in turned.into_iter().enumerate() {
                    turn_row(emit, set * 4 + 1 + row as u8, order);
                }
            }
        }
        emit.asm.op(Code::Dec_rm32, &[r8d]);
        emit.asm.jump(Code::Jne_rel32_64, again);
        for set in 0..SETS {
            for (row, from) in rows.iter().enumerate() {
                let row = set * 4 + row as u8;
                emit.v3(table::ADD[2], row, row, *from);
            }
            let (d, nine) = (set * 4 + 3, emit.v(9));
            emit.v3(table::ADD[2], d, d, nine);
            emit.v3(table::ADD[2], d, d, steps[usize::from(set)]);
            for row in 0..4 {
                for lane in 0..lanes {
                    let block = usize::from(set) * lanes + lane;
                    let to = Arg::M(Register::RBX, (block * 64 + usize::from(row) * 16) as i32);
                    extract(emit, to, set * 4 + row, lane);
                }
            }
        }
        let blocks = Arg::I((bytes / 64) as i32);
        emit.asm.op(Code::Add_rm32_imm8, &[eax, blocks]);
    });
}

fn half(key: &[u8; 32], at: usize) -> [u8; 16] {
    std::array::from_fn(|byte| key[at + byte])
}

/// For each block of a vector: its number from `first`, in the counter's place.
fn counters(emit: &mut Emit<'_>, lanes: usize, first: u32) -> Arg {
    let mut line = [0; 64];
    for lane in 0..lanes {
        line[lane * 16..lane * 16 + 4].copy_from_slice(&(first + lane as u32).to_le_bytes());
    }
    emit.asm.constant(&line)
}

/// Stores 16 bytes of a vector.
fn extract(emit: &mut Emit<'_>, to: Arg, register: u8, lane: usize) {
    let code = match emit.cpu.isa {
        Isa::Avx2 => Code::VEX_Vextracti128_xmmm128_ymm_imm8,
        Isa::Avx512 => Code::EVEX_Vextracti32x4_xmmm128_k1z_zmm_imm8,
    };
    let args = [to, emit.v(register), Arg::I(lane as i32)];
    emit.asm.op(code, &args);
}

/// The words of a row in another order.
fn turn_row(emit: &mut Emit<'_>, row: u8, order: i32) {
    let code = match emit.cpu.isa {
        Isa::Avx2 => Code::VEX_Vpshufd_ymm_ymmm256_imm8,
        Isa::Avx512 => Code::EVEX_Vpshufd_zmm_k1z_zmmm512b32_imm8,
    };
    let args = [emit.v(row), emit.v(row), Arg::I(order)];
    emit.asm.op(code, &args);
}

/// RFC 8439 §2.1, on all columns of all sets.
fn quarter(emit: &mut Emit<'_>) {
    for (left, right) in [(16, 12), (8, 7)] {
        for (sum, other, turned, bits) in [(0, 1, 3, left), (2, 3, 1, right)] {
            for set in 0..SETS {
                let (sum, other) = (set * 4 + sum, set * 4 + other);
                let turned = set * 4 + turned;
                let other = emit.v(other);
                emit.v3(table::ADD[2], sum, sum, other);
                let sum = emit.v(sum);
                emit.v3(table::XOR, turned, turned, sum);
                rotate(emit, turned, bits);
            }
        }
    }
}

/// Rotates words left. Uses register 8.
fn rotate(emit: &mut Emit<'_>, register: u8, bits: u32) {
    if emit.wide() {
        emit.vshift(table::ROTATE[2], register, register, bits);
    } else if bits.is_multiple_of(8) {
        let bytes = bits as u8 / 8;
        let order: [u8; 16] = std::array::from_fn(|at| {
            let at = at as u8;
            at / 4 * 4 + (at + 4 - bytes) % 4
        });
        let order = emit.asm.lanes(order);
        emit.v3(table::SHUFFLE, register, register, order);
    } else {
        emit.vshift(table::RIGHT[2], 8, register, 32 - bits);
        emit.vshift(table::LEFT[2], register, register, bits);
        let low = emit.v(8);
        emit.v3(table::OR, register, register, low);
    }
}

/// Blocks in one turn.
const AES_BLOCKS: usize = 8;

/// Counters are written by general registers, then encrypted where they lie.
fn aes(
    emit: &mut Emit<'_>,
    round_keys: &[[u8; 16]],
    counter: [u8; 16],
    first: usize,
    kept: &Keystream,
) {
    let counter = u128::from_be_bytes(counter);
    let keys: Vec<Arg> = round_keys.iter().map(|key| emit.asm.lanes(*key)).collect();
    let (low, high, scratch) = (Register::RAX, Register::R12, Register::R8);
    let r = Arg::R;
    let words = emit.asm.lanes(counter.to_le_bytes());
    let Arg::M(pool, at) = words else {
        unreachable!("constants are memory");
    };
    emit.asm.op(Code::Mov_r64_rm64, &[r(low), Arg::M(pool, at)]);
    emit.asm
        .op(Code::Mov_r64_rm64, &[r(high), Arg::M(pool, at + 8)]);
    emit.asm
        .op(Code::Add_r64_rm64, &[r(low), Emit::persistent(first)]);
    emit.asm.op(Code::Adc_rm64_imm8, &[r(high), Arg::I(0)]);
    turns(emit, kept, (AES_BLOCKS * 16) as i32, |emit| {
        for block in 0..AES_BLOCKS as i32 {
            for (word, at) in [(high, 0), (low, 8)] {
                emit.gpr2(Code::Mov_r64_rm64, scratch, word);
                emit.asm.op(Code::Bswap_r64, &[r(scratch)]);
                let to = Arg::M(Register::RBX, block * 16 + at);
                emit.asm.op(Code::Mov_rm64_r64, &[to, r(scratch)]);
            }
            emit.asm.op(Code::Add_rm64_imm8, &[r(low), Arg::I(1)]);
            emit.asm.op(Code::Adc_rm64_imm8, &[r(high), Arg::I(0)]);
        }
        rounds(emit, &keys);
    });
}

/// Encrypts the turn's blocks.
fn rounds(emit: &mut Emit<'_>, keys: &[Arg]) {
    let (width, base) = match (emit.cpu.aes_wide, emit.cpu.isa) {
        (true, Isa::Avx512) => (64, Register::ZMM0),
        (true, Isa::Avx2) => (32, Register::YMM0),
        (false, _) => (16, Register::XMM0),
    };
    let (load, store, xor, round, last) = match width {
        64 => (
            Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512,
            Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm,
            Code::EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64,
            Code::EVEX_Vaesenc_zmm_zmm_zmmm512,
            Code::EVEX_Vaesenclast_zmm_zmm_zmmm512,
        ),
        32 => (
            Code::VEX_Vmovdqu_ymm_ymmm256,
            Code::VEX_Vmovdqu_ymmm256_ymm,
            Code::VEX_Vpxor_ymm_ymm_ymmm256,
            Code::VEX_Vaesenc_ymm_ymm_ymmm256,
            Code::VEX_Vaesenclast_ymm_ymm_ymmm256,
        ),
        _ => (
            Code::VEX_Vmovdqu_xmm_xmmm128,
            Code::VEX_Vmovdqu_xmmm128_xmm,
            Code::VEX_Vpxor_xmm_xmm_xmmm128,
            Code::VEX_Vaesenc_xmm_xmm_xmmm128,
            Code::VEX_Vaesenclast_xmm_xmm_xmmm128,
        ),
    };
    let vectors = AES_BLOCKS * 16 / width;
    let register = |at: usize| Arg::R(base + at as u32);
    let memory = |at: usize| Arg::M(Register::RBX, (at * width) as i32);
    for at in 0..vectors {
        emit.asm.op(load, &[register(at), memory(at)]);
    }
    for (number, key) in keys.iter().enumerate() {
        let code = match number {
            0 => xor,
            _ if number + 1 == keys.len() => last,
            _ => round,
        };
        for at in 0..vectors {
            emit.asm.op(code, &[register(at), register(at), *key]);
        }
    }
    for at in 0..vectors {
        emit.asm.op(store, &[memory(at), register(at)]);
    }
}
