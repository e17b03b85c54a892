//! Filters and frames, drawn from domains small enough that they meet.

use ashway_abi::Leaf;
use ashway_codegen::demux::emit::NO_PATH;
use ashway_demux::spare::{self, Spares};
use ashway_demux::{Base, Conjunction, Field, Filter, Table, Test};
use ashway_wire::Headers;

/// A generator of numbers (xorshift64*, Vigna 2016): the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

const PORTS: [u16; 6] = [53, 80, 4789, 7777, 7778, 0];
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Some of them are extension headers of IPv6, or none that are walked.
const PROTOCOLS: [u8; 10] = [17, 17, 17, 6, 6, 132, 1, 58, 51, 44];

fn left<const N: usize>(bytes: [u8; N]) -> [u8; 16] {
    let mut value = [0; 16];
    value[..N].copy_from_slice(&bytes);
    value
}

fn address(random: &mut Random) -> [u8; 16] {
    left([10, 0, random.one(&[0, 1]), random.one(&[1, 2])])
}

/// A test that some frames pass.
fn test(random: &mut Random) -> Test {
    let port = |random: &mut Random| random.one(&PORTS).to_be_bytes();
    match random.below(14) {
        0 => Test::new(
            Field::Vlans,
            left([random.one(&[1, 2, 3])]),
            left([random.one(&[0, 1, 3])]),
        ),
        1 | 2 => Test::whole(
            Field::EtherType,
            random.one(&[0x0800_u16, 0x86dd, 0x0806]).to_be_bytes(),
        ),
        3 | 4 => Test::whole(Field::Protocol, [random.one(&PROTOCOLS)]),
        5 => Test::new(
            Field::Fragment,
            left([random.one(&[1, 2, 3])]),
            left([random.one(&[0, 0, 1, 2])]),
        ),
        6 => Test::new(
            Field::Vlan0,
            left([0x0f, 0xff]),
            left([0, random.one(&[1, 2])]),
        ),
        7 => Test::new(
            Field::Vlan1,
            left([0x0f, 0xff]),
            left([0, random.one(&[1, 2])]),
        ),
        8 | 9 => {
            let field = random.one(&[Field::Source, Field::Destination]);
            let mask = random.one(&[4, 3, 2, 16]);
            let mut bits = [0; 16];
            bits[..mask].fill(0xff);
            if mask == 2 {
                bits[2] = 0x80;
            }
            Test::new(field, bits, address(random))
        }
        10 => Test::whole(Field::SourcePort, port(random)),
        11 if random.chance(30) => Test::new(
            Field::DestinationPort,
            left([0xff, 0xf0]),
            left(port(random)),
        ),
        11 => Test::whole(Field::DestinationPort, port(random)),
        12 => Test::whole(Field::Vni, (random.below(2) as u32).to_be_bytes()),
        _ => {
            let width = random.one(&[1, 2, 4]);
            let field = Field::Raw {
                base: random.one(&[Base::Eth, Base::L3, Base::L4]),
                offset: random.one(&[0, 1, 8, 12, 40]),
                width,
            };
            let mut mask = [0; 16];
            mask[..width as usize].fill(random.one(&[0xff, 0x0f, 0x00]));
            Test::new(field, mask, left([random.one(&[0, 0x45, 0x60, 8])]))
        }
    }
}

/// Tests on different fields, by field.
fn tests(random: &mut Random, most: usize) -> Vec<Test> {
    let mut tests: Vec<Test> = (0..random.below(most + 1)).map(|_| test(random)).collect();
    tests.sort();
    tests.dedup_by_key(|test| test.field);
    tests
}

fn conjunction(random: &mut Random) -> Conjunction {
    let mut not = Vec::new();
    if random.chance(15) {
        let excluded = tests(random, 2);
        if !excluded.is_empty() {
            not.push(excluded);
        }
    }
    Conjunction {
        tests: tests(random, 5),
        not,
    }
}

/// A table of up to `filters` filters: those that are in nobody's way.
pub(crate) fn table(random: &mut Random, filters: usize) -> Table<u32> {
    let mut table = Table::default();
    for number in 0..filters as u32 {
        let filter = Filter {
            text: format!("number {number}"),
            any: vec![conjunction(random)],
        };
        let _ = table.insert(&filter, number);
    }
    table
}

/// The key of an entry of a shape that is data, and what it leads to.
pub(crate) type Spare = ([u8; spare::KEY_BYTES], u32);

/// A table that has grown since a program was made of it.
pub(crate) struct Grown {
    /// As it was then.
    pub(crate) program: Table<u32>,
    /// As it is.
    pub(crate) table: Table<u32>,
    /// What has come, all of other shapes, as data.
    pub(crate) spares: Spares,
    /// Its entries.
    pub(crate) entries: Vec<Spare>,
}

/// A table of up to `filters` filters, and as many of other shapes as there is room for.
pub(crate) fn grown(random: &mut Random, filters: usize) -> Grown {
    let program = table(random, filters);
    let mut grown = Grown {
        table: program.clone(),
        program,
        spares: Spares::default(),
        entries: Vec::new(),
    };
    for number in 1_000..1_060 {
        let filter = Filter {
            text: format!("number {number}"),
            any: vec![conjunction(random)],
        };
        let mut next = grown.table.clone();
        let Ok(change) = next.insert(&filter, number) else {
            continue;
        };
        let [(id, key)] = &change.added[..] else {
            continue;
        };
        let known = |table: &Table<u32>| table.shapes().iter().any(|one| one.id() == *id);
        if known(&grown.program) {
            continue;
        }
        let entries = next.shapes().iter().find(|one| one.id() == *id);
        let shape = entries.unwrap().shape();
        let Some(slot) = grown.spares.place(shape) else {
            continue;
        };
        let key = grown.spares.key(slot, shape, key);
        grown.entries.push((key, number));
        grown.table = next;
    }
    grown
}

/// A frame of some protocol, with tags, options and extension headers, which may
/// lie about themselves.
pub(crate) fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a];
    if random.chance(35) {
        for _ in 0..random.below(4) {
            frame.extend(random.one(&TAGS).to_be_bytes());
            frame.extend([random.one(&[0, 0x20]), random.one(&[1, 2])]);
        }
    }
    match random.below(20) {
        0 => frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]),
        1..=10 => ipv4(random, &mut frame),
        _ => ipv6(random, &mut frame),
    }
    frame.extend((0..random.below(24)).map(|i| i as u8));
    frame
}

fn ipv4(random: &mut Random, frame: &mut Vec<u8>) {
    let words = if random.chance(70) {
        5
    } else {
        random.below(16)
    };
    let version = if random.chance(95) { 0x40 } else { 0x60 };
    frame.extend([8, 0, version | words as u8, 0, 0, 60, 0, 0]);
    let fragment = if random.chance(80) {
        random.one(&[0_u16, 0x4000])
    } else {
        random.one(&[0x2000, 0x2001, 1, 0x1fff, 0x8000])
    };
    frame.extend(fragment.to_be_bytes());
    let protocol = random.one(&PROTOCOLS);
    frame.extend([64, protocol, 0, 0]);
    frame.extend(&address(random)[..4]);
    frame.extend(&address(random)[..4]);
    frame.extend(vec![1; words.saturating_sub(5) * 4]);
    transport(random, frame, protocol);
}

fn ipv6(random: &mut Random, frame: &mut Vec<u8>) {
    let mut chain = Vec::new();
    if random.chance(45) {
        chain.extend((0..random.below(11)).map(|_| random.one(&[0_u8, 43, 44, 60, 60, 51])));
    }
    let protocol = random.one(&PROTOCOLS);
    let kinds: Vec<u8> = chain.iter().copied().chain([protocol]).collect();
    let version = if random.chance(95) { 0x60 } else { 0x40 };
    frame.extend([0x86, 0xdd, version, 0, 0, 0, 0, 60, kinds[0], 64]);
    frame.extend(address(random));
    frame.extend(address(random));
    for pair in kinds.windows(2) {
        let [kind, next] = pair else { continue };
        if *kind == 44 {
            let place = if random.chance(60) {
                0
            } else {
                random.one(&[1_u16, 8, 9, 0xfff8])
            };
            frame.extend([*next, 0]);
            frame.extend(place.to_be_bytes());
            frame.extend([0; 4]);
        } else {
            let more = random.one(&[0_u8, 0, 0, 1, 2, 255]);
            frame.extend([*next, more]);
            let real = if random.chance(95) {
                usize::from(more).min(40)
            } else {
                0
            };
            frame.extend(vec![0; 6 + real * 8]);
        }
    }
    transport(random, frame, protocol);
}

fn transport(random: &mut Random, frame: &mut Vec<u8>, protocol: u8) {
    let port = random.one(&PORTS);
    frame.extend(random.one(&PORTS).to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0, 20, 0, 0]);
    if protocol == 17 && port == 4789 {
        frame.extend([random.one(&[8, 0]), 0, 0, 0, 0, 0, random.below(2) as u8, 0]);
    }
}

/// What the leaf of a path says; every word is another.
pub(crate) fn leaf(path: u32) -> Leaf {
    Leaf {
        row: path + 1,
        local: path + 2,
        ring_base: path as u16 + 3,
        ring_count: path as u16 + 6,
        // Beyond those that say where the headers are.
        flags: (path + 4) << 8,
        slot: path + 5,
        tag: path,
    }
}

/// What the program has to say.
pub(crate) fn expected(table: &Table<u32>, frame: &[u8]) -> u32 {
    let headers = Headers::parse(frame);
    table.find(&headers, frame).unwrap_or(NO_PATH)
}
