//! A list of pipes, and where each one's registers are.

use std::ops::Range;

use super::cipher::Cipher;
use super::error::PipeError;
use super::ir::{Gauge, Pipe, Reduce, Update};
use super::primitive::{ADLER_MODULUS, Primitive};

/// Most pipes of one list.
pub const MAX_PIPES: usize = 32;

/// Most ciphers of one list: each needs room for its keystream on the stack.
pub const MAX_CIPHERS: usize = 2;

/// A pipe at its place in a list.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The pipe.
    pub pipe: Pipe,
    /// Its name in the list: the second `cksum16` is `cksum16#2`, and shares
    /// nothing with the first (ASH §II.B).
    pub name: String,
    /// Index of its first register among the list's.
    pub first_register: usize,
}

/// Pipes that a message passes one after the other.
///
/// The empty list copies.
///
/// # Examples
///
/// ```
/// use ashway_codegen::pipe::{interpret, parse};
/// let list = parse("cksum16 | bswap32 | cksum16").unwrap();
/// let mut registers = list.initial();
/// let mut data = *b"\x01\x02\x03\x04";
/// interpret(&list, &mut registers, &mut data);
/// assert_eq!(data, *b"\x04\x03\x02\x01");
/// let at = |name| list.register(name).unwrap();
/// assert_eq!(registers[at("cksum16.sum")], 0x0604);
/// assert_eq!(registers[at("cksum16#2.sum")], 0x0406);
/// ```
#[derive(Clone, Debug, Default)]
pub struct List {
    pipes: Vec<Placed>,
    registers: usize,
    /// What is done to exported registers before a run, by index.
    forms: Vec<(usize, Form)>,
    /// What is done to registers behind a run, by index.
    ends: Vec<(usize, End)>,
}

/// The form of a register that not every number has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// So many bits.
    Masked(u64),
    /// A ones' complement sum of 16 bits.
    Folded,
    /// Less than the modulus of Adler-32.
    Reduced,
}

/// What becomes of a register behind a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Rotated by the length of the run.
    Rolled(Gauge),
    /// So many bits are kept of a sum.
    Masked(u64),
}

impl List {
    /// The list that copies.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pipe at the end and gives its index.
    ///
    /// # Errors
    ///
    /// [`PipeError::ListTooLong`], [`PipeError::TooManyCiphers`] or
    /// [`PipeError::GaugesDiffer`], with its name.
    pub fn push(&mut self, pipe: Pipe) -> Result<usize, PipeError> {
        let index = self.pipes.len();
        if index >= MAX_PIPES {
            return Err(PipeError::ListTooLong {
                pipe: pipe.name,
                count: index + 1,
            });
        }
        if pipe.input != pipe.output {
            return Err(PipeError::GaugesDiffer {
                pipe: pipe.name,
                input: pipe.input,
                output: pipe.output,
            });
        }
        if matches!(pipe.primitive, Some(Primitive::Cipher(_))) {
            let ciphers = self.pipes.iter();
            let is_cipher =
                |one: &&Placed| matches!(one.pipe.primitive, Some(Primitive::Cipher(_)));
            let count = ciphers.filter(is_cipher).count() + 1;
            if count > MAX_CIPHERS {
                return Err(PipeError::TooManyCiphers {
                    pipe: pipe.name,
                    count,
                });
            }
        }
        let same = self
            .pipes
            .iter()
            .filter(|placed| placed.pipe.name == pipe.name);
        let name = match same.count() {
            0 => pipe.name.clone(),
            before => format!("{}#{}", pipe.name, before + 1),
        };
        let first_register = self.registers;
        self.registers += pipe.registers.len();
        for (register, update) in &pipe.updates {
            let sum = matches!(update, Update::Reduce(Reduce::Sum, _));
            if sum && pipe.register_width != Gauge::Bits64 {
                let mask = End::Masked(pipe.register_width.mask());
                self.ends.push((first_register + register.index(), mask));
            }
            let form = match (update, &pipe.primitive) {
                (_, Some(Primitive::Crc(_))) => Form::Masked(0xffff_ffff),
                (_, Some(Primitive::Adler)) => Form::Reduced,
                (Update::Set(_) | Update::Reduce(Reduce::Sum, _), _) => continue,
                (Update::Reduce(Reduce::Ones, _), _) => Form::Folded,
                (Update::Reduce(_, _), _) => Form::Masked(pipe.input.mask()),
            };
            self.forms.push((first_register + register.index(), form));
        }
        if let Some(Primitive::Cipher(cipher)) = &pipe.primitive {
            let mask = match cipher {
                Cipher::ChaCha20 { .. } => 0xffff_ffff,
                // So that counting blocks does not wrap inside a run.
                Cipher::AesCtr { .. } => u64::MAX >> 1,
            };
            self.forms.push((first_register, Form::Masked(mask)));
        }
        if let Some(register) = pipe.rolling {
            let index = first_register + register.index();
            self.forms.push((index, Form::Masked(pipe.input.mask())));
            self.ends.push((index, End::Rolled(pipe.input)));
        }
        self.pipes.push(Placed {
            pipe,
            name,
            first_register,
        });
        Ok(index)
    }

    /// The pipes in order.
    #[must_use]
    pub fn pipes(&self) -> &[Placed] {
        &self.pipes
    }

    /// Some of the pipes as a list of their own, and where their registers are among
    /// this one's.
    ///
    /// # Panics
    ///
    /// If there are not as many pipes.
    #[must_use]
    pub fn part(&self, pipes: Range<usize>) -> (Self, Range<usize>) {
        let mut part = Self::new();
        let placed = &self.pipes[pipes];
        for one in placed {
            part.push(one.pipe.clone())
                .expect("what a list took, a shorter one takes");
        }
        let first = placed.first().map_or(0, |one| one.first_register);
        let registers = first..first + part.registers;
        (part, registers)
    }

    /// How many registers all pipes have.
    #[must_use]
    pub const fn register_count(&self) -> usize {
        self.registers
    }

    /// What the registers hold at first, in the list's order. Exporting
    /// (ASH §II.B) is writing into it, importing is reading it after a run.
    #[must_use]
    pub fn initial(&self) -> Vec<u64> {
        let registers = self.pipes.iter().flat_map(|placed| &placed.pipe.registers);
        registers.map(|register| register.initial).collect()
    }

    /// The index of the register `pipe.register`, or of the only register of
    /// `pipe`.
    #[must_use]
    pub fn register(&self, name: &str) -> Option<usize> {
        let (pipe, register) = match name.split_once('.') {
            Some((pipe, register)) => (pipe, Some(register)),
            None => (name, None),
        };
        let placed = self.pipes.iter().find(|placed| placed.name == pipe)?;
        let of = &placed.pipe.registers;
        let index = match register {
            Some(register) => of.iter().position(|one| one.name == register)?,
            None if of.len() == 1 => 0,
            None => return None,
        };
        Some(placed.first_register + index)
    }

    /// The registers' full names, in order.
    #[must_use]
    pub fn register_names(&self) -> Vec<String> {
        let names = self.pipes.iter().flat_map(|placed| {
            let of = placed.pipe.registers.iter();
            of.map(move |register| format!("{}.{}", placed.name, register.name))
        });
        names.collect()
    }

    /// Whether the data passes all of them unchanged: in place, nothing needs to
    /// be written (ASH §III.C).
    #[must_use]
    pub fn no_mod(&self) -> bool {
        self.pipes.iter().all(|placed| placed.pipe.no_mod)
    }

    /// What [`Self::normalise`] does, by register.
    pub(super) fn forms(&self) -> &[(usize, Form)] {
        &self.forms
    }

    /// What [`Self::finish`] does, by register.
    pub(super) fn ends(&self) -> &[(usize, End)] {
        &self.ends
    }

    /// Brings what was exported into the form that reduced registers have: the
    /// width of the gauge; folded, if a ones' complement sum; reduced, if Adler's. Every way of
    /// running a list does it first.
    pub fn normalise(&self, registers: &mut [u64]) {
        for (index, form) in &self.forms {
            let register = &mut registers[*index];
            match form {
                Form::Masked(mask) => *register &= mask,
                Form::Folded if *register <= 0xffff => {}
                Form::Folded => *register = fold(*register),
                Form::Reduced => *register %= u64::from(ADLER_MODULUS),
            }
        }
    }

    /// Turns rolling registers on by the length of a run, and brings sums to their
    /// width. Every way of running a list does it last.
    pub fn finish(&self, registers: &mut [u64], len: usize) {
        for (index, end) in &self.ends {
            let register = &mut registers[*index];
            match end {
                End::Masked(mask) => *register &= mask,
                End::Rolled(gauge) => {
                    let bits = (len % gauge.bytes()) as u32 * 8;
                    if bits != 0 {
                        let turned = *register >> bits | *register << (gauge.bits() - bits);
                        *register = turned & gauge.mask();
                    }
                }
            }
        }
    }
}

/// The 16-bit ones' complement sum of a number's four halfwords: 0 only for 0.
#[must_use]
pub(super) const fn fold(sum: u64) -> u64 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

#[cfg(test)]
mod tests {
    use super::super::builtin;
    use super::super::ir::{Builder, Gauge};
    use super::*;

    #[test]
    fn a_list_has_an_end_and_names_the_pipe_behind_it() {
        let mut list = List::new();
        for _ in 0..MAX_PIPES {
            list.push(builtin::copy()).unwrap();
        }
        let error = list.push(builtin::swap(Gauge::Bits32)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`bswap32` would be pipe 33 of the list; at most 32"
        );
    }

    #[test]
    fn a_pipe_that_changes_the_length_is_refused_by_name() {
        let mut body = Builder::new("widen", Gauge::Bits8).output_gauge(Gauge::Bits16);
        let word = body.input();
        let error = List::new().push(body.finish(word).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`widen` takes words of 8 bits and gives words of 16 bits; a list keeps the length of the data"
        );
    }

    #[test]
    fn the_same_pipe_twice_has_two_names() {
        let mut list = List::new();
        list.push(builtin::internet_checksum()).unwrap();
        list.push(builtin::internet_checksum()).unwrap();
        assert_eq!(list.register_names(), ["cksum16.sum", "cksum16#2.sum"]);
        assert_eq!(list.register("cksum16#2"), Some(1));
    }

    #[test]
    fn folding_keeps_the_residue_and_is_zero_for_zero_only() {
        for sum in [
            0,
            1,
            0xffff,
            0x1_0000,
            0xffff_ffff,
            u64::MAX,
            0xffff_0000_0001,
        ] {
            let folded = fold(sum);
            assert!(folded <= 0xffff);
            assert_eq!(folded % 0xffff, sum % 0xffff);
            assert_eq!(folded == 0, sum == 0);
        }
    }
}
