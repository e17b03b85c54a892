//! What lies where in the state region, behind the mutable globals.
//!
//! A table that any operator reads or changes, and a passive segment that any
//! operator initialises from, lies there as plain words or bytes, so that both
//! tiers and the application see the same. The application can falsify all of
//! it: sizes are therefore never the only check. Entries are numbers that each
//! call checks again ([`OpKind::CallNumber`]), words are reached through
//! [`OpKind::WordGet`], which knows their number, and a segment's size is cut
//! to its length.
//!
//! [`OpKind::CallNumber`]: super::ir::OpKind::CallNumber
//! [`OpKind::WordGet`]: super::ir::OpKind::WordGet

use super::error::NormaliseError;
use super::ir::{Module, StateData, TablePlace};
use super::limits::Limits;
use super::read::within;
use super::references::of_function;
use ashway_abi::memory::{STATE_BYTES, WASM_PAGE};
use std::borrow::Cow;
use std::collections::BTreeSet;
use wasmparser::Operator;

/// What the bodies use of tables and segments, by index.
#[derive(Default)]
pub(super) struct Uses {
    stored: BTreeSet<u32>,
    grown: BTreeSet<u32>,
    data: BTreeSet<u32>,
    dropped_data: BTreeSet<u32>,
    elements: BTreeSet<u32>,
    dropped_elements: BTreeSet<u32>,
}

impl Uses {
    /// Takes note of one valid operator.
    pub(super) fn add(&mut self, operator: &Operator<'_>) {
        match *operator {
            Operator::TableGet { table }
            | Operator::TableSet { table }
            | Operator::TableSize { table }
            | Operator::TableFill { table } => {
                self.stored.insert(table);
            }
            Operator::TableGrow { table } => {
                self.stored.insert(table);
                self.grown.insert(table);
            }
            Operator::TableCopy {
                dst_table,
                src_table,
            } => self.stored.extend([dst_table, src_table]),
            Operator::TableInit { elem_index, table } => {
                self.stored.insert(table);
                self.elements.insert(elem_index);
            }
            Operator::ElemDrop { elem_index } => {
                self.dropped_elements.insert(elem_index);
            }
            Operator::MemoryInit { data_index, .. } => {
                self.data.insert(data_index);
            }
            Operator::DataDrop { data_index } => {
                self.dropped_data.insert(data_index);
            }
            _ => {}
        }
    }
}

/// A passive segment in the state region; one that is active, declared or
/// never used is of length 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Segment {
    /// Offset of its first byte or word.
    pub(super) at: u32,
    /// Its bytes or words.
    pub(super) len: u32,
    /// Offset of the word that is `len` until the segment is dropped, and then
    /// 0; `None` for one that no operator drops.
    pub(super) size: Option<u32>,
}

/// Where the segments lie, by index. Tables' places are in the module.
#[derive(Default)]
pub(super) struct Segments {
    pub(super) data: Vec<Segment>,
    pub(super) elements: Vec<Segment>,
    /// The first byte of the state region behind all of it.
    pub(super) end: usize,
}

/// Gives everything that `uses` names its place. `data` and `elements` are the
/// contents of passive segments, by index, empty for others; `maxima` the
/// tables' declared ones.
pub(super) fn place<'a>(
    module: &mut Module<'a>,
    uses: &Uses,
    maxima: &[Option<u64>],
    data: &[&'a [u8]],
    elements: &[Vec<u32>],
    globals_end: usize,
    limits: &Limits,
) -> Result<Segments, NormaliseError> {
    let mut room = Room {
        end: globals_end,
        most: limits.state_bytes,
    };
    for (table, number) in module.tables.iter_mut().zip(0..) {
        if !uses.stored.contains(&number) {
            continue;
        }
        let initial = table.entries.len() as u32;
        let capacity = if uses.grown.contains(&number) {
            let declared = maxima[number as usize].unwrap_or(u64::MAX);
            initial.max(declared.min(u64::from(limits.table_entries)) as u32)
        } else {
            initial
        };
        let size = room.words(1)?;
        let entries = room.words(capacity)?;
        table.place = Some(TablePlace {
            size,
            entries,
            capacity,
        });
        module.state.push(words(size, &[initial]));
        if table.entries.iter().any(Option::is_some) {
            let numbers = table.entries.iter().map(|f| f.map_or(0, of_function));
            let numbers: Vec<u32> = numbers.collect();
            module.state.push(words(entries, &numbers));
        }
    }
    let mut segments = Segments::default();
    for (items, number) in elements.iter().zip(0..) {
        let mut segment = Segment::default();
        if uses.elements.contains(&number) && !items.is_empty() {
            segment.len = items.len() as u32;
            segment.at = room.words(segment.len)?;
            module.state.push(words(segment.at, items));
            if uses.dropped_elements.contains(&number) {
                segment.size = Some(room.words(1)?);
            }
        }
        segments.elements.push(segment);
    }
    for (bytes, number) in data.iter().zip(0..) {
        let mut segment = Segment::default();
        if uses.data.contains(&number) && !bytes.is_empty() {
            segment.len = bytes.len() as u32;
            segment.at = room.bytes(bytes.len())?;
            module.state.push(StateData {
                at: segment.at,
                bytes: Cow::Borrowed(bytes),
            });
            if uses.dropped_data.contains(&number) {
                segment.size = Some(room.words(1)?);
            }
        }
        segments.data.push(segment);
    }
    for segment in segments.data.iter().chain(&segments.elements) {
        if let Some(size) = segment.size {
            module.state.push(words(size, &[segment.len]));
        }
    }
    segments.end = room.end;
    fit(module, room.end, limits)?;
    Ok(segments)
}

/// Makes the state region large enough for so many bytes.
pub(super) fn fit(
    module: &mut Module<'_>,
    end: usize,
    limits: &Limits,
) -> Result<(), NormaliseError> {
    within(STATE_BYTES_USED, end, limits.state_bytes)?;
    module.state_bytes = end.next_multiple_of(WASM_PAGE).max(STATE_BYTES);
    Ok(())
}

fn words<'a>(at: u32, words: &[u32]) -> StateData<'a> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    StateData {
        at,
        bytes: bytes.into(),
    }
}

/// The part of the state region that is taken.
struct Room {
    end: usize,
    most: u32,
}

impl Room {
    fn words(&mut self, count: u32) -> Result<u32, NormaliseError> {
        self.bytes(count as usize * 4)
    }

    fn bytes(&mut self, len: usize) -> Result<u32, NormaliseError> {
        let at = self.end.next_multiple_of(4);
        self.end = at + len;
        within(STATE_BYTES_USED, self.end, self.most)?;
        Ok(at as u32)
    }
}

/// The part of a file that [`Limits::state_bytes`] limits.
const STATE_BYTES_USED: &str = "bytes of globals, stored tables and passive segments";
