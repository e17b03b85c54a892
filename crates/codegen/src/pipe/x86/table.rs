//! Which instruction does what, by width of the vector and of the lanes.
//!
//! Tables of lanes have an entry for 8, 16, 32 and 64 bits. `None`: there is no
//! such instruction.

use iced_x86::Code;

/// An instruction in its forms for 128, 256 (VEX) and 512 bits (EVEX).
#[derive(Clone, Copy)]
pub(super) struct V {
    pub(super) x: Option<Code>,
    pub(super) y: Option<Code>,
    pub(super) z: Option<Code>,
}

/// Sums of lanes.
pub(super) const ADD: [V; 4] = [
    V {
        x: Some(Code::VEX_Vpaddb_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpaddb_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpaddb_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: Some(Code::VEX_Vpaddw_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpaddw_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpaddw_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: Some(Code::VEX_Vpaddd_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpaddd_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32),
    },
    V {
        x: Some(Code::VEX_Vpaddq_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpaddq_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64),
    },
];

/// Differences of lanes.
pub(super) const SUB: [V; 4] = [
    V {
        x: Some(Code::VEX_Vpsubb_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpsubb_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpsubb_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: Some(Code::VEX_Vpsubw_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpsubw_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpsubw_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: Some(Code::VEX_Vpsubd_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpsubd_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32),
    },
    V {
        x: Some(Code::VEX_Vpsubq_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpsubq_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpsubq_zmm_k1z_zmm_zmmm512b64),
    },
];

/// Products of lanes, lower halves. There are none of bytes.
pub(super) const MUL: [V; 4] = [
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: Some(Code::VEX_Vpmullw_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpmullw_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpmullw_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: Some(Code::VEX_Vpmulld_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpmulld_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpmullq_zmm_k1z_zmm_zmmm512b64),
    },
];

/// The lesser lanes, unsigned.
pub(super) const MIN: [V; 4] = [
    V {
        x: Some(Code::VEX_Vpminub_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpminub_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpminub_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: Some(Code::VEX_Vpminuw_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpminuw_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpminuw_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: Some(Code::VEX_Vpminud_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpminud_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpminud_zmm_k1z_zmm_zmmm512b32),
    },
    V {
        x: Some(Code::EVEX_Vpminuq_xmm_k1z_xmm_xmmm128b64),
        y: None,
        z: Some(Code::EVEX_Vpminuq_zmm_k1z_zmm_zmmm512b64),
    },
];

/// The greater lanes, unsigned.
pub(super) const MAX: [V; 4] = [
    V {
        x: Some(Code::VEX_Vpmaxub_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpmaxub_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpmaxub_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: Some(Code::VEX_Vpmaxuw_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpmaxuw_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpmaxuw_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: Some(Code::VEX_Vpmaxud_xmm_xmm_xmmm128),
        y: Some(Code::VEX_Vpmaxud_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpmaxud_zmm_k1z_zmm_zmmm512b32),
    },
    V {
        x: Some(Code::EVEX_Vpmaxuq_xmm_k1z_xmm_xmmm128b64),
        y: None,
        z: Some(Code::EVEX_Vpmaxuq_zmm_k1z_zmm_zmmm512b64),
    },
];

/// And.
pub(super) const AND: V = V {
    x: Some(Code::VEX_Vpand_xmm_xmm_xmmm128),
    y: Some(Code::VEX_Vpand_ymm_ymm_ymmm256),
    z: Some(Code::EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64),
};

/// And of the second with what the first has not.
pub(super) const ANDN: V = V {
    x: Some(Code::VEX_Vpandn_xmm_xmm_xmmm128),
    y: Some(Code::VEX_Vpandn_ymm_ymm_ymmm256),
    z: Some(Code::EVEX_Vpandnq_zmm_k1z_zmm_zmmm512b64),
};

/// Or.
pub(super) const OR: V = V {
    x: Some(Code::VEX_Vpor_xmm_xmm_xmmm128),
    y: Some(Code::VEX_Vpor_ymm_ymm_ymmm256),
    z: Some(Code::EVEX_Vporq_zmm_k1z_zmm_zmmm512b64),
};

/// Exclusive or.
pub(super) const XOR: V = V {
    x: Some(Code::VEX_Vpxor_xmm_xmm_xmmm128),
    y: Some(Code::VEX_Vpxor_ymm_ymm_ymmm256),
    z: Some(Code::EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64),
};

/// Bytes in the order of the second, in groups of 16.
pub(super) const SHUFFLE: V = V {
    x: Some(Code::VEX_Vpshufb_xmm_xmm_xmmm128),
    y: Some(Code::VEX_Vpshufb_ymm_ymm_ymmm256),
    z: Some(Code::EVEX_Vpshufb_zmm_k1z_zmm_zmmm512),
};

/// Sums of eight bytes' differences.
pub(super) const SAD: V = V {
    x: Some(Code::VEX_Vpsadbw_xmm_xmm_xmmm128),
    y: Some(Code::VEX_Vpsadbw_ymm_ymm_ymmm256),
    z: Some(Code::EVEX_Vpsadbw_zmm_zmm_zmmm512),
};

/// Sums of bytes, at most 255.
pub(super) const ADD_SATURATED: V = V {
    x: Some(Code::VEX_Vpaddusb_xmm_xmm_xmmm128),
    y: Some(Code::VEX_Vpaddusb_ymm_ymm_ymmm256),
    z: Some(Code::EVEX_Vpaddusb_zmm_k1z_zmm_zmmm512),
};

/// Sums of two products of an unsigned and a signed byte.
pub(super) const MADD_BYTES: V = V {
    x: Some(Code::VEX_Vpmaddubsw_xmm_xmm_xmmm128),
    y: Some(Code::VEX_Vpmaddubsw_ymm_ymm_ymmm256),
    z: Some(Code::EVEX_Vpmaddubsw_zmm_k1z_zmm_zmmm512),
};

/// Sums of two products of words.
pub(super) const MADD_WORDS: V = V {
    x: Some(Code::VEX_Vpmaddwd_xmm_xmm_xmmm128),
    y: Some(Code::VEX_Vpmaddwd_ymm_ymm_ymmm256),
    z: Some(Code::EVEX_Vpmaddwd_zmm_k1z_zmm_zmmm512),
};

/// Shifts left by a constant. There are none of bytes.
pub(super) const LEFT: [V; 4] = [
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsllw_ymm_ymm_imm8),
        z: Some(Code::EVEX_Vpsllw_zmm_k1z_zmmm512_imm8),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpslld_ymm_ymm_imm8),
        z: Some(Code::EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsllq_ymm_ymm_imm8),
        z: Some(Code::EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8),
    },
];

/// Shifts right by a constant. There are none of bytes.
pub(super) const RIGHT: [V; 4] = [
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsrlw_ymm_ymm_imm8),
        z: Some(Code::EVEX_Vpsrlw_zmm_k1z_zmmm512_imm8),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsrld_ymm_ymm_imm8),
        z: Some(Code::EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsrlq_ymm_ymm_imm8),
        z: Some(Code::EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8),
    },
];

/// Shifts right of signed lanes by a constant. There are none of bytes.
pub(super) const RIGHT_SIGNED: [V; 4] = [
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsraw_ymm_ymm_imm8),
        z: Some(Code::EVEX_Vpsraw_zmm_k1z_zmmm512_imm8),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsrad_ymm_ymm_imm8),
        z: Some(Code::EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpsraq_zmm_k1z_zmmm512b64_imm8),
    },
];

/// Rotations left by a constant. There are none of bytes.
pub(super) const ROTATE: [V; 4] = [
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vprold_zmm_k1z_zmmm512b32_imm8),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vprolq_zmm_k1z_zmmm512b64_imm8),
    },
];

/// Shifts left, each lane by its own amount; all of it goes from the width on.
pub(super) const LEFT_BY: [V; 4] = [
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsllvd_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsllvq_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64),
    },
];

/// The same to the right.
pub(super) const RIGHT_BY: [V; 4] = [
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: None,
        y: None,
        z: None,
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsrlvd_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpsrlvq_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpsrlvq_zmm_k1z_zmm_zmmm512b64),
    },
];

/// Lanes of ones where equal; to a mask register with 512 bits.
pub(super) const EQUAL: [V; 4] = [
    V {
        x: None,
        y: Some(Code::VEX_Vpcmpeqb_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpcmpeqb_kr_k1_zmm_zmmm512),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpcmpeqw_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpcmpeqw_kr_k1_zmm_zmmm512),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpcmpeqd_kr_k1_zmm_zmmm512b32),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpcmpeqq_ymm_ymm_ymmm256),
        z: Some(Code::EVEX_Vpcmpeqq_kr_k1_zmm_zmmm512b64),
    },
];

/// Unsigned comparison to a mask register, by a constant.
pub(super) const COMPARE: [V; 4] = [
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpcmpub_kr_k1_zmm_zmmm512_imm8),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpcmpuw_kr_k1_zmm_zmmm512_imm8),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpcmpud_kr_k1_zmm_zmmm512b32_imm8),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpcmpuq_kr_k1_zmm_zmmm512b64_imm8),
    },
];

/// Mask of lanes that are not 0.
pub(super) const TEST: [V; 4] = [
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vptestmb_kr_k1_zmm_zmmm512),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vptestmw_kr_k1_zmm_zmmm512),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vptestmd_kr_k1_zmm_zmmm512b32),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vptestmq_kr_k1_zmm_zmmm512b64),
    },
];

/// The second where the mask is set, else the first.
pub(super) const BLEND: [V; 4] = [
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpblendmb_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpblendmw_zmm_k1z_zmm_zmmm512),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpblendmd_zmm_k1z_zmm_zmmm512b32),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vpblendmq_zmm_k1z_zmm_zmmm512b64),
    },
];

/// Lanes where the mask is set.
pub(super) const LOAD_MASKED: [V; 4] = [
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vmovdqu8_zmm_k1z_zmmm512),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vmovdqu16_zmm_k1z_zmmm512),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vmovdqu32_zmm_k1z_zmmm512),
    },
    V {
        x: None,
        y: None,
        z: Some(Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512),
    },
];

/// One word to all lanes.
pub(super) const BROADCAST: [V; 4] = [
    V {
        x: None,
        y: Some(Code::VEX_Vpbroadcastb_ymm_xmmm8),
        z: Some(Code::EVEX_Vpbroadcastb_zmm_k1z_xmmm8),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpbroadcastw_ymm_xmmm16),
        z: Some(Code::EVEX_Vpbroadcastw_zmm_k1z_xmmm16),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpbroadcastd_ymm_xmmm32),
        z: Some(Code::EVEX_Vpbroadcastd_zmm_k1z_xmmm32),
    },
    V {
        x: None,
        y: Some(Code::VEX_Vpbroadcastq_ymm_xmmm64),
        z: Some(Code::EVEX_Vpbroadcastq_zmm_k1z_xmmm64),
    },
];

/// Any alignment.
pub(super) const LOAD: V = V {
    x: Some(Code::VEX_Vmovdqu_xmm_xmmm128),
    y: Some(Code::VEX_Vmovdqu_ymm_ymmm256),
    z: Some(Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512),
};

/// Any alignment.
pub(super) const STORE: V = V {
    x: Some(Code::VEX_Vmovdqu_xmmm128_xmm),
    y: Some(Code::VEX_Vmovdqu_ymmm256_ymm),
    z: Some(Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm),
};

/// Past the caches; aligned.
pub(super) const STREAM: V = V {
    x: None,
    y: Some(Code::VEX_Vmovntdq_m256_ymm),
    z: Some(Code::EVEX_Vmovntdq_m512_zmm),
};

/// Carry-less product of a half of each 16 bytes.
pub(super) const CARRYLESS: V = V {
    x: Some(Code::VEX_Vpclmulqdq_xmm_xmm_xmmm128_imm8),
    y: Some(Code::VEX_Vpclmulqdq_ymm_ymm_ymmm256_imm8),
    z: Some(Code::EVEX_Vpclmulqdq_zmm_zmm_zmmm512_imm8),
};
