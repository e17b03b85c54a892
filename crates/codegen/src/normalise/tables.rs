//! Operators on stored tables and passive segments, spelled out.
//!
//! Each becomes ordinary Wasm with the few operations of the normal form that
//! reach the state region. They do as WebAssembly 2.0 §4.4.6 and §4.4.7 say:
//! the whole range is checked first, so a trap leaves nothing half done, and a
//! range of length 0 is checked too. Loops over entries pay turn by turn, as
//! the author's own would; `memory.init` pays for its bytes before it checks
//! them, as `memory.copy` does.

use super::body::Lowering;
use super::ir::{OpKind, TablePlace, Words};
use super::state::Segment;
use ashway_abi::Cause;
use wasmparser::{BlockType, Operator, ValType};

/// Locals that an expansion keeps its operands in.
#[derive(Clone, Copy)]
pub(super) enum Scratch {
    /// Destination, or the index of an entry.
    To = 0,
    /// Source, or a value.
    From = 1,
    /// How many are left.
    Count = 2,
    /// What is added for each turn, or the size before.
    Step = 3,
}

impl Scratch {
    /// How many there are.
    pub(super) const ALL: u32 = 4;
}

/// Operands that an expansion has on the stack at most, beside those that the
/// operator itself takes.
pub(super) const MOST_OPERANDS: u32 = 4;

/// How many entries or bytes there are.
#[derive(Clone, Copy)]
enum Size {
    Always(u32),
    /// The word at this offset.
    Word(u32),
    /// The word at this offset, or 0: never more than the number.
    Until(u32, u32),
}

impl Size {
    fn of_segment(segment: Segment) -> Self {
        match segment.size {
            Some(word) => Self::Until(word, segment.len),
            None => Self::Always(segment.len),
        }
    }
}

/// A stored table's room.
const fn entries(place: TablePlace, cause: Cause) -> Words {
    Words {
        at: place.entries,
        len: place.capacity,
        ty: ValType::I32,
        cause,
    }
}

impl Lowering<'_, '_> {
    /// A stored table's place, and how many entries it has.
    fn stored(&self, table: u32) -> (TablePlace, Size) {
        let table = &self.reader.module.tables[table as usize];
        let place = table.place.expect("its operator was counted as a use");
        let size = if place.capacity as usize == table.entries.len() {
            Size::Always(place.capacity)
        } else {
            Size::Word(place.size)
        };
        (place, size)
    }

    fn size(&mut self, size: Size) {
        let ty = ValType::I32;
        match size {
            Size::Always(size) => self.constant(size),
            Size::Word(offset) => self.push(OpKind::StateGet { offset, ty }),
            Size::Until(offset, most) => {
                self.push(OpKind::StateGet { offset, ty });
                self.constant(most);
                self.wasm(Operator::I32And);
            }
        }
    }

    /// Replaces the index on the stack by the entry.
    pub(super) fn table_get(&mut self, table: u32, cause: Cause) {
        let (place, size) = self.stored(table);
        // A table that cannot grow is as long as its room, which `WordGet`
        // knows.
        if let Size::Word(_) = size {
            self.tee(Scratch::To);
            self.size(size);
            self.wasm(Operator::I32GeU);
            self.trap_if(cause);
            self.get(Scratch::To);
        }
        self.push(OpKind::WordGet(entries(place, cause)));
    }

    /// Stores the entry on the stack at the index below it.
    pub(super) fn table_set(&mut self, table: u32) {
        let (place, size) = self.stored(table);
        if let Size::Word(_) = size {
            self.set(Scratch::From);
            self.tee(Scratch::To);
            self.size(size);
            self.wasm(Operator::I32GeU);
            self.trap_if(Cause::TableBounds);
            self.get(Scratch::To);
            self.get(Scratch::From);
        }
        self.word_set(place);
    }

    pub(super) fn table_size(&mut self, table: u32) {
        let (_, size) = self.stored(table);
        self.size(size);
    }

    pub(super) fn table_grow(&mut self, table: u32) {
        let (place, size) = self.stored(table);
        self.set(Scratch::Count);
        self.set(Scratch::From);
        self.size(size);
        self.tee(Scratch::To);
        self.set(Scratch::Step);
        // Too many, in 64 bits: count + size > capacity.
        self.end_of(Scratch::Count, Scratch::To);
        self.wasm(Operator::I64Const {
            value: i64::from(place.capacity),
        });
        self.wasm(Operator::I64GtU);
        self.wasm(Operator::If {
            blockty: BlockType::Type(ValType::I32),
        });
        self.constant(u32::MAX);
        self.wasm(Operator::Else);
        self.each(|this| {
            this.get(Scratch::To);
            this.get(Scratch::From);
            this.word_set(place);
            this.add(Scratch::To, 1);
        });
        if let Size::Word(offset) = size {
            self.get(Scratch::To);
            self.push(OpKind::StateSet {
                offset,
                ty: ValType::I32,
            });
        }
        self.get(Scratch::Step);
        self.wasm(Operator::End);
    }

    pub(super) fn table_fill(&mut self, table: u32) {
        let (place, size) = self.stored(table);
        self.set(Scratch::Count);
        self.set(Scratch::From);
        self.set(Scratch::To);
        self.check_range(Scratch::To, size, Cause::TableBounds);
        self.each(|this| {
            this.get(Scratch::To);
            this.get(Scratch::From);
            this.word_set(place);
            this.add(Scratch::To, 1);
        });
    }

    pub(super) fn table_copy(&mut self, to: u32, from: u32) {
        let (to, to_size) = self.stored(to);
        let (from, from_size) = self.stored(from);
        self.range_operands();
        self.check_range(Scratch::From, from_size, Cause::TableBounds);
        self.check_range(Scratch::To, to_size, Cause::TableBounds);
        // From the end backwards if the destination lies behind the source.
        self.constant(1);
        self.set(Scratch::Step);
        self.get(Scratch::To);
        self.get(Scratch::From);
        self.wasm(Operator::I32GtU);
        self.wasm(Operator::If {
            blockty: BlockType::Empty,
        });
        for place in [Scratch::To, Scratch::From] {
            self.get(place);
            self.get(Scratch::Count);
            self.wasm(Operator::I32Add);
            self.constant(1);
            self.wasm(Operator::I32Sub);
            self.set(place);
        }
        self.constant(u32::MAX);
        self.set(Scratch::Step);
        self.wasm(Operator::End);
        self.each(|this| {
            this.copy_word(to, from.entries, from.capacity);
            for place in [Scratch::To, Scratch::From] {
                this.get(place);
                this.get(Scratch::Step);
                this.wasm(Operator::I32Add);
                this.set(place);
            }
        });
    }

    pub(super) fn table_init(&mut self, table: u32, segment: Segment) {
        let (place, size) = self.stored(table);
        self.range_operands();
        self.check_range(Scratch::From, Size::of_segment(segment), Cause::TableBounds);
        self.check_range(Scratch::To, size, Cause::TableBounds);
        self.each(|this| {
            this.copy_word(place, segment.at, segment.len);
            this.add(Scratch::To, 1);
            this.add(Scratch::From, 1);
        });
    }

    pub(super) fn memory_init(&mut self, segment: Segment) {
        self.push(OpKind::ChargeBulk);
        self.range_operands();
        self.check_range(
            Scratch::From,
            Size::of_segment(segment),
            Cause::MemoryBounds,
        );
        self.get(Scratch::To);
        self.get(Scratch::From);
        self.constant(segment.at);
        self.wasm(Operator::I32Add);
        self.get(Scratch::Count);
        self.push(OpKind::StateCopy);
    }

    /// `data.drop` and `elem.drop`.
    pub(super) fn drop_segment(&mut self, segment: Segment) {
        if let Some(offset) = segment.size {
            self.constant(0);
            self.push(OpKind::StateSet {
                offset,
                ty: ValType::I32,
            });
        }
    }

    /// Takes destination, source and count off the stack.
    fn range_operands(&mut self) {
        self.set(Scratch::Count);
        self.set(Scratch::From);
        self.set(Scratch::To);
    }

    /// Traps unless `start + Count <= size`.
    fn check_range(&mut self, start: Scratch, size: Size, cause: Cause) {
        self.end_of(Scratch::Count, start);
        self.size(size);
        self.wasm(Operator::I64ExtendI32U);
        self.wasm(Operator::I64GtU);
        self.trap_if(cause);
    }

    /// Pushes the sum as an `i64`, so that nothing wraps.
    fn end_of(&mut self, count: Scratch, start: Scratch) {
        self.get(count);
        self.wasm(Operator::I64ExtendI32U);
        self.get(start);
        self.wasm(Operator::I64ExtendI32U);
        self.wasm(Operator::I64Add);
    }

    fn word_set(&mut self, place: TablePlace) {
        self.push(OpKind::WordSet(entries(place, Cause::TableBounds)));
    }

    fn copy_word(&mut self, to: TablePlace, at: u32, len: u32) {
        self.get(Scratch::To);
        self.get(Scratch::From);
        let ty = ValType::I32;
        let cause = Cause::TableBounds;
        self.push(OpKind::WordGet(Words { at, len, ty, cause }));
        self.word_set(to);
    }

    /// Does `turn` as often as `Count` says, which is then 0.
    fn each(&mut self, turn: impl FnOnce(&mut Self)) {
        let blockty = BlockType::Empty;
        self.wasm(Operator::Block { blockty });
        self.wasm(Operator::Loop { blockty });
        self.push(OpKind::Charge { cost: 0 });
        self.get(Scratch::Count);
        self.wasm(Operator::I32Eqz);
        self.wasm(Operator::BrIf { relative_depth: 1 });
        turn(self);
        self.add(Scratch::Count, u32::MAX);
        self.wasm(Operator::Br { relative_depth: 0 });
        self.wasm(Operator::End);
        self.wasm(Operator::End);
    }

    fn add(&mut self, to: Scratch, number: u32) {
        self.get(to);
        self.constant(number);
        self.wasm(Operator::I32Add);
        self.set(to);
    }
}
