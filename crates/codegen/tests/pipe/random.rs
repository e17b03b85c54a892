//! Random numbers from a seed, and random pipes from those.

use std::sync::Arc;

use ashway_codegen::pipe::{
    Binary, Builder, Count, Gauge, List, Op, Pipe, Reduce, RegisterId, Shift, Value, builtin, parse,
};

/// Numbers from a seed (splitmix64, Steele et al. 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Often an edge, else anything.
    pub(super) fn constant(&mut self) -> u64 {
        match self.below(4) {
            0 => self.one_of(&[0, 1, 0x7f, 0x80, 0xff, 0x8000, 0xffff, u64::MAX, 1 << 63]),
            1 => self.number() & 0xff,
            _ => self.number(),
        }
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        // Runs of one byte as well as noise.
        let noisy = self.below(3) > 0;
        let run = self.one_of(&[0, 0xff, 0x80]);
        (0..len)
            .map(|_| if noisy { self.number() as u8 } else { run })
            .collect()
    }

    /// A length up to 4096, short and round ones more often.
    pub(super) fn length(&mut self) -> usize {
        match self.below(4) {
            0 => self.below(130),
            1 => (self.below(65) * 64 + self.below(3))
                .saturating_sub(1)
                .min(4096),
            _ => self.below(4097),
        }
    }
}

const NAMES: &[&str] = &[
    "copy",
    "cksum16",
    "crc32",
    "crc32c",
    "adler32",
    "bswap16",
    "bswap32",
    "bswap64",
    "xor8(0x5a)",
    "xor16(0x1234)",
    "xor(0xdeadbeef)",
    "xor64(0x0123456789abcdef)",
    "add8(3)",
    "add16(0x8001)",
    "add32(7)",
    "add64(0xffffffffffffffff)",
    "mask(0x37fa213d)",
    "alaw2ulaw",
    "ulaw2alaw",
    "sum8",
    "sum16",
    "sum32",
    "sum64",
    "min8",
    "min16",
    "min32",
    "min64",
    "max8",
    "max16",
    "max32",
    "max64",
    "count8(0)",
    "count16(0xffff)",
    "count32(0)",
    "count64(0)",
];

/// A list of up to 8 pipes.
pub(super) fn list(random: &mut Random) -> List {
    let mut list = List::new();
    for _ in 0..random.below(9) {
        let pipe = if random.below(16) == 0 {
            cipher(random)
        } else if random.below(2) == 0 {
            let one = parse(random.one_of(NAMES)).unwrap();
            one.pipes()[0].pipe.clone()
        } else {
            pipe(random)
        };
        // A third cipher is refused; the list then is one shorter.
        let name = pipe.name().to_owned();
        let pushed = list.push(pipe);
        assert!(pushed.is_ok() || name == "chacha20" || name == "aesctr");
    }
    list
}

fn cipher(random: &mut Random) -> Pipe {
    let mut bytes =
        |count: usize| -> Vec<u8> { (0..count).map(|_| random.number() as u8).collect() };
    let (key, nonce) = (bytes(32), bytes(16));
    let counter = random.one_of(&[0, 1, u32::MAX - 3]);
    if random.below(2) == 0 {
        let nonce = std::array::from_fn(|at| nonce[at]);
        return builtin::chacha20(key.try_into().unwrap(), nonce, counter);
    }
    let bytes = random.one_of(&[16, 24, 32]);
    // Sometimes the counter's low half is about to carry.
    let mut counter: [u8; 16] = nonce.try_into().unwrap();
    if counter[0] & 1 == 0 {
        counter[8..].fill(0xff);
    }
    builtin::aes_ctr(&key[..bytes], counter).unwrap()
}

/// A pipe with any body.
pub(super) fn pipe(random: &mut Random) -> Pipe {
    let gauge = random.one_of(&Gauge::WORDS);
    let wider: Vec<Gauge> = Gauge::WORDS
        .into_iter()
        .filter(|one| *one >= gauge)
        .collect();
    let width = if random.below(4) == 0 {
        random.one_of(&wider)
    } else {
        gauge
    };
    let mut body = Builder::new("any", gauge).width(width);
    if random.below(2) == 0 {
        body = body.leave_tail();
    }
    let table: [u32; 256] = std::array::from_fn(|_| random.number() as u32);
    body = body.table(Arc::new(table));
    let registers: Vec<RegisterId> = (0..random.below(4))
        .map(|at| body.register(&format!("r{at}"), random.constant()))
        .collect();
    // Registers that are reduced into stay unread, so that most are commutative.
    let ordered = random.below(3) == 0;
    let written = random.below(registers.len() + 1);
    let readable = if ordered { 0 } else { written };
    let mut values = vec![body.input()];
    for _ in 0..random.below(12) {
        let value = operator(random, &mut body, &values, &registers[readable..], width);
        values.push(value);
    }
    let mut commutative = true;
    for register in &registers[..written] {
        let value = random.one_of(&values);
        if ordered && random.below(2) == 0 {
            body.set(*register, value);
            commutative = false;
        } else {
            let mut ways = vec![
                Reduce::Sum,
                Reduce::Xor,
                Reduce::Or,
                Reduce::Min,
                Reduce::Max,
            ];
            if gauge == Gauge::Bits16 {
                ways.push(Reduce::Ones);
            }
            body.reduce(*register, random.one_of(&ways), value);
        }
    }
    // With `ordered` a register may be read and reduced into.
    let result = random.one_of(&values);
    if commutative
        && random.below(8) > 0
        && let Ok(pipe) = body.clone().commutative().finish(result)
    {
        return pipe;
    }
    body.finish(result).unwrap()
}

fn operator(
    random: &mut Random,
    body: &mut Builder,
    values: &[Value],
    readable: &[RegisterId],
    width: Gauge,
) -> Value {
    // The latest values more often: longer chains.
    let mut any = || {
        let back = random.below(values.len()).min(random.below(values.len()));
        values[values.len() - 1 - back]
    };
    let (a, b, c) = (any(), any(), any());
    match random.below(14) {
        12 => {
            let what = random.one_of(&[Count::Ones, Count::Leading, Count::Trailing]);
            body.op(Op::Count(what, a))
        }
        13 => {
            let op = random.one_of(&[
                Shift::Left,
                Shift::Right,
                Shift::RightSigned,
                Shift::RotateLeft,
            ]);
            body.op(Op::ShiftBy(op, a, b))
        }
        0 => body.constant(random.constant()),
        1 if !readable.is_empty() => body.read(random.one_of(readable)),
        1 | 2 => body.op(Op::Swap(a)),
        3 => body.op(Op::Select(a, b, c)),
        4 => body.op(Op::Table(a)),
        5 | 6 => {
            let op = random.one_of(&[
                Shift::Left,
                Shift::Right,
                Shift::RightSigned,
                Shift::RotateLeft,
            ]);
            body.shift(op, a, random.below(width.bits() as usize) as u32)
        }
        _ => {
            let op = random.one_of(&[
                Binary::Add,
                Binary::Sub,
                Binary::Mul,
                Binary::And,
                Binary::Or,
                Binary::Xor,
                Binary::Min,
                Binary::Max,
                Binary::Equal,
                Binary::Below,
            ]);
            body.binary(op, a, b)
        }
    }
}
