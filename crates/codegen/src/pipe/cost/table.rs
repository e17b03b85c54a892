//! Made by `ashway pipe calibrate`.

use super::Costs;

pub(super) const AVX2: Costs = Costs {
    call: 8.4,
    moves: [0.32, 1.39, 6.07],
    operator: 0.12,
    reduction: [0.6, 0.15],
    spill: 0.69,
    crc: [17.6, 1.38],
    adler: [4.9, 0.91],
    chacha20: [108.2, 26.16],
    aes: [9.3, 7.99],
    in_order: 0.60,
    streaming_bytes: 4096 << 10,
};

pub(super) const AVX512: Costs = Costs {
    call: 8.7,
    moves: [0.24, 1.34, 7.14],
    operator: 0.11,
    reduction: [0.7, 0.11],
    spill: 0.28,
    crc: [19.2, 1.16],
    adler: [6.0, 0.71],
    chacha20: [115.0, 8.34],
    aes: [8.6, 7.77],
    in_order: 0.48,
    streaming_bytes: 4096 << 10,
};
