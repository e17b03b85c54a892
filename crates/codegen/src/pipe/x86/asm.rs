//! Writes instructions, labels and constants.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, MemoryOperand, OpKind,
    Register,
};

use crate::bug::{self, Bug};

/// An operand.
#[derive(Clone, Copy)]
pub(super) enum Arg {
    /// A register.
    R(Register),
    /// Memory at a register plus a displacement.
    M(Register, i32),
    /// Memory at the sum of two registers plus a displacement.
    X(Register, Register, i32),
    /// A constant.
    I(i32),
}

impl Arg {
    fn memory(self) -> Option<MemoryOperand> {
        // The displacement's size is the encoder's choice.
        match self {
            Self::M(base, at) => Some(MemoryOperand::with_base_displ_size(base, i64::from(at), 1)),
            Self::X(base, index, at) => Some(MemoryOperand::with_base_index_scale_displ_size(
                base,
                index,
                1,
                i64::from(at),
                1,
            )),
            Self::R(_) | Self::I(_) => None,
        }
    }
}

/// A place to jump to.
#[derive(Clone, Copy)]
pub(super) struct Label(u64);

/// A constant that stays in a register.
#[derive(Clone, Copy)]
pub(super) struct Pin {
    /// Where it is in the constants.
    pub(super) at: i32,
    /// Its size: the register's.
    pub(super) bytes: usize,
    /// A vector register.
    pub(super) register: Register,
}

/// Where constants are: the register that all code here keeps for them.
pub(super) const POOL: Register = Register::R9;

/// Constants begin at a cache line.
const POOL_ALIGN: usize = 64;

/// Code and constants as they grow.
#[derive(Clone, Default)]
pub(super) struct Asm {
    code: Vec<Instruction>,
    labels: u64,
    pending: Option<Label>,
    pool: Vec<u8>,
    pinned: Vec<Pin>,
}

impl Asm {
    /// Instructions so far.
    pub(super) fn len(&self) -> usize {
        self.code.len()
    }

    /// Writes an instruction. The operands' kinds must be ones that it has.
    pub(super) fn op(&mut self, code: Code, args: &[Arg]) {
        self.push(instruction(code, args));
    }

    /// Writes one that changes only lanes set in `mask`; the others become 0 if
    /// `zeroing`.
    pub(super) fn masked(&mut self, code: Code, args: &[Arg], mask: Register, zeroing: bool) {
        let mut instruction = instruction(code, args);
        instruction.set_op_mask(mask);
        instruction.set_zeroing_masking(zeroing);
        self.push(instruction);
    }

    /// A label to be placed.
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// Places a label before the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        if self.pending.is_some() {
            self.push(Instruction::with(Code::Nopd));
        }
        self.pending = Some(label);
    }

    /// Writes a jump.
    pub(super) fn jump(&mut self, code: Code, to: Label) {
        self.push(Instruction::with_branch(code, to.0).expect("a jump has one target"));
    }

    fn push(&mut self, mut instruction: Instruction) {
        if let Some(Label(label)) = self.pending.take() {
            instruction.set_ip(label);
        }
        let pinned = pooled(&instruction).and_then(|at| {
            let bytes = instruction.memory_size().size();
            let mut pins = self.pinned.iter();
            pins.find(|pin| pin.bytes == bytes && (pin.at == at || bug::is(Bug::PipePinAny)))
        });
        if let Some(Pin { register, .. }) = pinned {
            let memory = (0..instruction.op_count())
                .find(|op| instruction.op_kind(*op) == OpKind::Memory)
                .expect("it has a constant in memory");
            instruction.set_op_kind(memory, OpKind::Register);
            instruction.set_op_register(memory, *register);
        }
        self.code.push(instruction);
    }

    /// Constants of `bytes` bytes that instructions from the one numbered `from` on
    /// use: where they are, most used first.
    pub(super) fn constants(&self, from: usize, bytes: usize) -> Vec<i32> {
        let mut uses: Vec<(i32, usize)> = Vec::new();
        for instruction in &self.code[from..] {
            let Some(at) = pooled(instruction) else {
                continue;
            };
            if instruction.memory_size().size() != bytes {
                continue;
            }
            match uses.iter_mut().find(|(constant, _)| *constant == at) {
                Some((_, count)) => *count += 1,
                None => uses.push((at, 1)),
            }
        }
        uses.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        uses.into_iter().map(|(at, _)| at).collect()
    }

    /// From now on, instructions find a constant in a register, which somebody has
    /// loaded.
    pub(super) fn pin(&mut self, pin: Pin) {
        self.pinned.push(pin);
    }

    /// Takes back what was written since there were `len` instructions. Constants
    /// stay where they are.
    pub(super) fn take_back(&mut self, len: usize, pending: Option<Label>) {
        self.code.truncate(len);
        self.pending = pending;
    }

    /// The label that waits for an instruction.
    pub(super) const fn pending(&self) -> Option<Label> {
        self.pending
    }

    /// Memory with `bytes`, 64 bytes or a multiple; the same only once.
    pub(super) fn constant(&mut self, bytes: &[u8]) -> Arg {
        debug_assert!(bytes.len().is_multiple_of(POOL_ALIGN));
        let lines = self.pool.windows(bytes.len()).step_by(POOL_ALIGN);
        let at = lines.clone().position(|line| line == bytes).map_or_else(
            || {
                let at = self.pool.len();
                self.pool.extend_from_slice(bytes);
                at
            },
            |line| line * POOL_ALIGN,
        );
        Arg::M(POOL, at as i32)
    }

    /// Memory with `words` over and over for 64 bytes.
    pub(super) fn lanes<const N: usize>(&mut self, word: [u8; N]) -> Arg {
        let mut line = [0; POOL_ALIGN];
        for lane in line.chunks_exact_mut(N) {
            lane.copy_from_slice(&word);
        }
        self.constant(&line)
    }

    /// The bytes: code, then the constants; and how many of them are instructions.
    /// The first instruction must be
    /// `lea POOL, [rip]`, whose displacement is written here.
    pub(super) fn finish(self) -> (Vec<u8>, usize) {
        let block = InstructionBlock::new(&self.code, 0);
        let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)
            .expect("instructions are ones that there are");
        let mut bytes = encoded.code_buffer;
        let instructions = bytes.len();
        bytes.resize(bytes.len().next_multiple_of(POOL_ALIGN), 0xcc);
        let from_lea = bytes.len() - LEA_BYTES;
        bytes[LEA_BYTES - 4..LEA_BYTES].copy_from_slice(&(from_lea as u32).to_le_bytes());
        bytes.extend_from_slice(&self.pool);
        (bytes, instructions)
    }
}

/// Length of `lea r9, [rip + displacement]`, the displacement last.
const LEA_BYTES: usize = 7;

/// Where in the constants the instruction's operand is, if it is one.
fn pooled(instruction: &Instruction) -> Option<i32> {
    let constant =
        instruction.memory_base() == POOL && instruction.memory_index() == Register::None;
    constant.then(|| instruction.memory_displacement64() as i32)
}

fn instruction(code: Code, args: &[Arg]) -> Instruction {
    use Arg::{I, R};
    let memory = |arg: &Arg| arg.memory();
    let made = match args {
        [] => return Instruction::with(code),
        [R(a)] => Instruction::with1(code, *a),
        [R(a), R(b)] => Instruction::with2(code, *a, *b),
        [R(a), I(b)] => Instruction::with2(code, *a, *b),
        [R(a), R(b), R(c)] => Instruction::with3(code, *a, *b, *c),
        [R(a), R(b), I(c)] => Instruction::with3(code, *a, *b, *c),
        [R(a), R(b), R(c), R(d)] => Instruction::with4(code, *a, *b, *c, *d),
        [R(a), R(b), R(c), I(d)] => Instruction::with4(code, *a, *b, *c, *d),
        [R(a), m] => Instruction::with2(code, *a, memory(m).expect("memory")),
        [m, R(b)] => Instruction::with2(code, memory(m).expect("memory"), *b),
        [m, I(b)] => Instruction::with2(code, memory(m).expect("memory"), *b),
        [R(a), R(b), m] => Instruction::with3(code, *a, *b, memory(m).expect("memory")),
        [R(a), m, I(c)] => Instruction::with3(code, *a, memory(m).expect("memory"), *c),
        [m, R(b), I(c)] => Instruction::with3(code, memory(m).expect("memory"), *b, *c),
        [R(a), R(b), m, I(d)] => Instruction::with4(code, *a, *b, memory(m).expect("memory"), *d),
        [R(a), R(b), m, R(d)] => Instruction::with4(code, *a, *b, memory(m).expect("memory"), *d),
        _ => unreachable!("no instruction here has such operands"),
    };
    made.expect("the operands are of the instruction's kinds")
}
