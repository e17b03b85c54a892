//! What libpcap says, through tcpdump.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A file of frames, taken away when dropped.
pub(crate) struct Capture(PathBuf);

impl Capture {
    /// Writes the frames; each one's time is its number.
    pub(crate) fn write<'f>(name: &str, frames: impl Iterator<Item = &'f [u8]>) -> Self {
        let file = format!("ashway-demux-{}-{name}.pcap", std::process::id());
        let path = std::env::temp_dir().join(file);
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1_u32] {
            bytes.extend(word.to_le_bytes());
        }
        for (i, frame) in frames.enumerate() {
            for word in [i, 0, frame.len(), frame.len()] {
                bytes.extend((word as u32).to_le_bytes());
            }
            bytes.extend(frame);
        }
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    /// Numbers of the frames that match, or libpcap's complaint.
    pub(crate) fn matching(&self, filter: &str) -> Result<Vec<usize>, String> {
        let output = tcpdump(&["-r", self.0.to_str().unwrap(), "-w", "-", filter])?;
        let mut numbers = Vec::new();
        let mut at = 24;
        while at + 16 <= output.len() {
            let word =
                |i: usize| u32::from_le_bytes(output[at + i..at + i + 4].try_into().unwrap());
            numbers.push(word(0) as usize);
            at += 16 + word(8) as usize;
        }
        Ok(numbers)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn tcpdump(arguments: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new("tcpdump")
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.unwrap();
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// libpcap's program for a filter (classic BPF; `McCanne` and Jacobson 1993).
pub(crate) struct Program(Vec<[u32; 4]>);

impl Program {
    pub(crate) fn of(filter: &str) -> Self {
        let text = tcpdump(&["-y", "EN10MB", "-ddd", filter]).unwrap();
        let text = String::from_utf8(text).unwrap();
        let numbers: Vec<u32> = text
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        Self(
            numbers[1..]
                .chunks_exact(4)
                .map(|insn| insn.try_into().unwrap())
                .collect(),
        )
    }

    /// Whether the program ends by reading beyond the frame.
    pub(crate) fn reads_beyond(&self, frame: &[u8]) -> bool {
        let load = |at: u32, bytes: usize| -> Option<u32> {
            let bytes = frame.get(at as usize..)?.get(..bytes)?;
            Some(
                bytes
                    .iter()
                    .fold(0, |value, &byte| value << 8 | u32::from(byte)),
            )
        };
        let (mut a, mut x, mut memory, mut pc) = (0_u32, 0_u32, [0_u32; 16], 0_usize);
        loop {
            let [code, yes, no, k] = self.0[pc];
            pc += 1;
            let loaded = match code {
                0x20 => load(k, 4),
                0x28 => load(k, 2),
                0x40 => load(x.wrapping_add(k), 4),
                0x48 => load(x.wrapping_add(k), 2),
                0x50 => load(x.wrapping_add(k), 1),
                0x30 | 0xb1 => load(k, 1),
                _ => Some(0),
            };
            let Some(loaded) = loaded else {
                return true;
            };
            let jump = |taken: bool| if taken { yes } else { no } as usize;
            match code {
                0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 => a = loaded,
                0xb1 => x = (loaded & 15) * 4,
                0x00 => a = k,
                0x01 => x = k,
                0x02 => memory[k as usize] = a,
                0x03 => memory[k as usize] = x,
                0x60 => a = memory[k as usize],
                0x61 => x = memory[k as usize],
                0x07 => x = a,
                0x87 => a = x,
                0x04 => a = a.wrapping_add(k),
                0x0c => a = a.wrapping_add(x),
                0x14 => a = a.wrapping_sub(k),
                0x1c => a = a.wrapping_sub(x),
                0x54 => a &= k,
                0x5c => a &= x,
                0x64 => a <<= k,
                0x74 => a >>= k,
                0x05 => pc += k as usize,
                0x15 => pc += jump(a == k),
                0x1d => pc += jump(a == x),
                0x25 => pc += jump(a > k),
                0x2d => pc += jump(a > x),
                0x35 => pc += jump(a >= k),
                0x3d => pc += jump(a >= x),
                0x45 => pc += jump(a & k != 0),
                0x06 | 0x16 => return false,
                _ => panic!("an instruction that filters of ours do not compile to: {code:#x}"),
            }
        }
    }
}
