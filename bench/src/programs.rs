//! Valid random messages for the handlers of `apps/programs`.
//!
//! The same seed gives the same messages. Each handler's own words say what its
//! message is; a test that wants malformed ones flips bytes of these.

use std::fmt::Write as _;
use std::io::Write;
use std::process::{Command, Stdio};

/// The programs, in the order in which tables list them.
pub const PROGRAMS: [&str; 8] = [
    "counter",
    "kv",
    "dns",
    "crc32",
    "sha256",
    "quicksort",
    "lz4",
    "base64",
];

/// Programs that nobody tunes for: zlib's decoder, and Rust with its sorting
/// and formatting.
pub const UNTUNED: [&str; 2] = ["inflate", "words"];

/// Libraries that are fetched, as they are: zstd's decoder in C; `httparse`, `dns-parser` and
/// `regex-automata` in Rust.
pub const LIBRARIES: [&str; 4] = ["zstd", "http", "names", "regex"];

/// `n` messages for a program. For `kv` the first half stores, the second half
/// looks up, so that all of them are to be run in this order.
///
/// # Panics
///
/// If there is no such program.
#[must_use]
pub fn inputs(name: &str, seed: u64, n: usize) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    let one = |index| match name {
        "counter" => random.bytes(4),
        "kv" => kv(&mut random, index, n),
        "dns" => dns(&mut random),
        "crc32" | "sha256" => random.bytes(1500),
        "quicksort" => random.bytes(4 + 4 * 256),
        "base64" => random.bytes(4 * 342),
        "lz4" => lz4(&mut random, 1500),
        "inflate" => inflate(&mut random, 1500),
        "zstd" => zstd(&mut random, 4000),
        "http" => http(&mut random),
        "names" => names(&mut random),
        "regex" => log(&mut random),
        "words" => {
            let numbers = 2 + random.below(255);
            random.bytes(4 * numbers)
        }
        other => panic!("no program `{other}`"),
    };
    (0..n).map(one).collect()
}

/// `SplitMix64` (Steele, Lea & Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Keys of 8 to 24 characters; half the table at most is full.
fn kv(random: &mut Random, index: usize, n: usize) -> Vec<u8> {
    let stored = (n / 2).clamp(1, 512);
    let number = if index < n / 2 {
        index % stored
    } else {
        random.below(stored)
    };
    let mut key = format!("user:{number:03}");
    while key.len() < 8 + number % 17 {
        key.push(char::from(b'a' + (key.len() % 26) as u8));
    }
    let value = random.bytes(16);
    let operation = u8::from(index < n / 2);
    let header = [operation, key.len() as u8, value.len() as u8, 0];
    [&header, key.as_bytes(), &value].concat()
}

fn dns(random: &mut Random) -> Vec<u8> {
    let mut message = random.bytes(2);
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in [3, 4 + random.below(9), 3] {
        message.push(label as u8);
        for _ in 0..label {
            message.push(b"abcdeABCDE0123456789-xyz"[random.below(24)]);
        }
    }
    message.extend_from_slice(&[0, 0, [1, 28][random.below(2)], 0, 1]);
    message
}

/// A block that decodes to `bytes` bytes, matches being found by the last place
/// where four bytes were seen.
fn lz4(random: &mut Random, bytes: usize) -> Vec<u8> {
    let plain = text(random, bytes);
    let mut message = vec![0, 0];
    compress(&plain, &mut message);
    message
}

/// A zlib stream that decodes to `bytes` bytes, behind the reply's place.
fn inflate(random: &mut Random, bytes: usize) -> Vec<u8> {
    let plain = text(random, bytes);
    let mut encoder = flate2::write::ZlibEncoder::new(vec![0; 8], flate2::Compression::default());
    encoder
        .write_all(&plain)
        .expect("writing to a vector does not fail");
    encoder.finish().expect("writing to a vector does not fail")
}

/// A frame that decodes to `bytes` bytes, behind the reply's place. The program `zstd` makes it.
fn zstd(random: &mut Random, bytes: usize) -> Vec<u8> {
    let plain = text(random, bytes);
    let mut child = Command::new("zstd")
        .args(["-q", "-c", if random.below(2) == 0 { "-1" } else { "-19" }])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program `zstd` is there: `apt-get install zstd`");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    // Less than a pipe holds.
    stdin.write_all(&plain).expect("zstd reads");
    drop(stdin);
    let output = child.wait_with_output().expect("zstd writes");
    [vec![0; 8], output.stdout].concat()
}

/// Bytes in front of a message for a library's reply.
const FRONT: [u8; 32] = [0; 32];

fn http(random: &mut Random) -> Vec<u8> {
    let word = |random: &mut Random| String::from_utf8(random.word()).expect("letters");
    let method = ["GET", "POST", "HEAD", "PUT"][random.below(4)];
    let mut head = format!("{method} /{}/{} HTTP/1.1\r\n", word(random), word(random));
    let _ = write!(head, "Host: {}.example\r\n", word(random));
    for _ in 0..random.below(12) {
        let _ = write!(
            head,
            "x-{}: {} {}\r\n",
            word(random),
            word(random),
            word(random)
        );
    }
    head += "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: */*\r\n\r\n";
    [&FRONT, head.as_bytes()].concat()
}

/// A response with names that point to others (RFC 1035, 4.1.4).
fn names(random: &mut Random) -> Vec<u8> {
    let answers = random.below(8) as u8;
    let mut message = random.bytes(2);
    message.extend_from_slice(&[0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]);
    for _ in 0..=random.below(3) {
        let label = random.word();
        message.push(label.len() as u8);
        message.extend_from_slice(&label);
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    for _ in 0..answers {
        message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4]);
        message.extend_from_slice(&random.bytes(4));
    }
    [&FRONT[..], &message].concat()
}

/// Lines of a web server's log.
fn log(random: &mut Random) -> Vec<u8> {
    let mut lines = FRONT.to_vec();
    for _ in 0..8 {
        let octets = [(); 4].map(|()| random.below(256));
        let path = String::from_utf8(random.word()).expect("letters");
        let status = [200, 304, 404, 403, 500][random.below(5)];
        let [a, b, c, d] = octets;
        let bytes = random.below(10_000);
        let line = format!(
            "{a}.{b}.{c}.{d} - - [27/Nov/2026:22:40:18 +0000] \"GET /{path} HTTP/1.1\" {status} {bytes}\n"
        );
        lines.extend_from_slice(line.as_bytes());
    }
    lines
}

/// Words of a small vocabulary, with new ones between.
fn text(random: &mut Random, bytes: usize) -> Vec<u8> {
    let words: Vec<Vec<u8>> = (0..40).map(|_| random.word()).collect();
    let mut plain = Vec::new();
    while plain.len() < bytes {
        plain.extend_from_slice(&words[random.below(words.len())]);
        if random.below(4) == 0 {
            plain.extend_from_slice(&random.word());
        }
    }
    plain.truncate(bytes);
    plain
}

impl Random {
    fn word(&mut self) -> Vec<u8> {
        let len = 3 + self.below(9);
        (0..len).map(|_| b'a' + self.below(26) as u8).collect()
    }
}

/// Greedy, over the whole input. The format wants the last 5 bytes literal and
/// the last match to begin 12 before the end.
fn compress(plain: &[u8], block: &mut Vec<u8>) {
    let mut seen = std::collections::HashMap::new();
    let (mut at, mut literals) = (0, 0);
    while at + 12 < plain.len() {
        let four: [u8; 4] = plain[at..at + 4].try_into().expect("four bytes");
        let Some(from) = seen.insert(four, at) else {
            at += 1;
            continue;
        };
        let most = plain.len() - 5 - at;
        let same = (0..most).take_while(|i| plain[from + i] == plain[at + i]);
        let len = same.count();
        sequence(block, &plain[literals..at], Some((at - from, len)));
        at += len;
        literals = at;
    }
    sequence(block, &plain[literals..], None);
}

fn sequence(block: &mut Vec<u8>, literals: &[u8], found: Option<(usize, usize)>) {
    let extra = found.map_or(0, |(_, len)| len - 4);
    block.push((literals.len().min(15) << 4 | extra.min(15)) as u8);
    length(block, literals.len());
    block.extend_from_slice(literals);
    if let Some((back, _)) = found {
        block.extend_from_slice(&(back as u16).to_le_bytes());
        length(block, extra);
    }
}

/// What does not fit the token.
fn length(block: &mut Vec<u8>, len: usize) {
    if len >= 15 {
        let more = len - 15;
        block.extend(std::iter::repeat_n(255, more / 255));
        block.push((more % 255) as u8);
    }
}
