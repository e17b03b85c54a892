//! Source lines from DWARF.
//!
//! Code addresses in a Wasm file's DWARF are offsets from the start of the code
//! section's contents ("DWARF for WebAssembly", section 2.1). Lines help
//! people and decide nothing, so whatever is broken is left out.
//!
//! Only line programs are read, one after the other as they lie in
//! `.debug_line`, without `.debug_info`: each byte is looked at once, however
//! units might refer to them.

use super::ir::FileOffset;
use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, DebugLineStr, DebugStr, EndianSlice, LittleEndian,
    Reader, SectionId,
};
use std::collections::HashMap;

/// Rows kept at most: a row of a hostile program takes one byte of the file.
const MOST_ROWS: usize = 1 << 18;
/// Names looked up at most: a hostile name can be as long as the file.
const MOST_FILES: usize = 2_048;

/// The custom sections that matter, and where the code is.
#[derive(Default)]
pub(super) struct Sections<'a> {
    pub(super) code_start: FileOffset,
    sections: HashMap<&'a str, &'a [u8]>,
}

impl<'a> Sections<'a> {
    /// Takes note of a custom section.
    pub(super) fn add(&mut self, name: &'a str, data: &'a [u8]) {
        if name.starts_with(".debug_") {
            self.sections.insert(name, data);
        }
    }

    fn get(&self, id: SectionId) -> Bytes<'a> {
        let data = self.sections.get(id.name()).copied().unwrap_or_default();
        EndianSlice::new(data, LittleEndian)
    }
}

/// Maps file offsets to source lines.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    files: Vec<String>,
    /// Sorted by offset; each row holds up to the next.
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    at: FileOffset,
    /// Index into `files` and the line; `None` where a sequence ends.
    line: Option<(u32, u32)>,
}

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

impl Lines {
    /// The source file, as the author named it to the compiler, and the line,
    /// from 1, of the operator at this offset.
    #[must_use]
    pub fn at(&self, offset: FileOffset) -> Option<(&str, u32)> {
        let after = self.rows.partition_point(|row| row.at <= offset);
        let row = self.rows.get(after.checked_sub(1)?)?;
        let (file, line) = row.line?;
        Some((&self.files[file as usize], line))
    }

    /// Whether no line is known at all: the file was built without `-g`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Lines that are the offsets themselves: of the file `name`, the line of
    /// each offset is its number. In place of the author's, they tell from what
    /// operator an instruction comes.
    #[must_use]
    pub fn of_offsets(name: &str, offsets: impl IntoIterator<Item = FileOffset>) -> Self {
        let mut offsets: Vec<FileOffset> = offsets.into_iter().collect();
        offsets.sort_unstable();
        offsets.dedup();
        let row = |at| Row {
            at,
            line: Some((0, at)),
        };
        Self {
            files: vec![name.to_owned()],
            rows: offsets.into_iter().map(row).collect(),
        }
    }

    /// The lines of a file that need be no handler, nor even valid: so that a
    /// refusal can name its line. Takes time in proportion to the file.
    #[must_use]
    pub fn of_file(wasm: &[u8]) -> Self {
        let mut sections = Sections::default();
        for payload in wasmparser::Parser::new(0).parse_all(wasm) {
            match payload {
                Ok(wasmparser::Payload::CodeSectionStart {
                    unchecked_range, ..
                }) => {
                    sections.code_start = unchecked_range.start as u32;
                }
                Ok(wasmparser::Payload::CustomSection(section)) => {
                    sections.add(section.name(), section.data());
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Self::read(&sections)
    }

    /// Reads what can be read.
    pub(super) fn read(sections: &Sections<'_>) -> Self {
        let mut building = Building {
            code_start: sections.code_start,
            line_strings: DebugLineStr::from(sections.get(SectionId::DebugLineStr)),
            strings: DebugStr::from(sections.get(SectionId::DebugStr)),
            known: HashMap::new(),
            lines: Self::default(),
        };
        // An error ends the reading; the rows found before it stand.
        let _ = building.programs(sections.get(SectionId::DebugLine));
        let mut lines = building.lines;
        // Where one sequence ends and the next begins, the beginning counts.
        lines.rows.sort_by_key(|row| (row.at, row.line.is_some()));
        lines
    }
}

/// Lines in the making.
struct Building<'a> {
    code_start: FileOffset,
    line_strings: DebugLineStr<Bytes<'a>>,
    strings: DebugStr<Bytes<'a>>,
    /// Index of each name in `lines.files`.
    known: HashMap<String, u32>,
    lines: Lines,
}

type Header<'a> = gimli::LineProgramHeader<Bytes<'a>>;

impl<'a> Building<'a> {
    fn programs(&mut self, section: Bytes<'a>) -> gimli::Result<()> {
        let programs = DebugLine::from(section);
        let mut offset = 0;
        while offset < section.len() {
            // Wasm addresses have 4 bytes; version 5 says so itself.
            let program = programs.program(DebugLineOffset(offset), 4, None, None)?;
            let header = program.header();
            offset += header.unit_length() + usize::from(header.format().initial_length_size());
            self.program(program)?;
        }
        Ok(())
    }

    fn program(&mut self, program: gimli::IncompleteLineProgram<Bytes<'a>>) -> gimli::Result<()> {
        let mut files = HashMap::new();
        let mut sequence = Vec::new();
        let mut rows = program.rows();
        while let Some((header, row)) = rows.next_row()? {
            if self.lines.rows.len() + sequence.len() >= MOST_ROWS {
                return Ok(());
            }
            let at = u64::from(self.code_start).saturating_add(row.address());
            let at = FileOffset::try_from(at).unwrap_or(FileOffset::MAX);
            if row.end_sequence() {
                sequence.push(Row { at, line: None });
                // The linker gives code that it left out the address 0 or -1.
                let first = sequence[0].at;
                if first > self.code_start && at < FileOffset::MAX {
                    self.lines.rows.append(&mut sequence);
                }
                sequence.clear();
            } else if let Some(number) = row.line() {
                // Rows without a line are the compiler's own code: they belong
                // to the row before.
                let file = *files
                    .entry(row.file_index())
                    .or_insert_with(|| self.file(header, row.file_index()));
                let number = number.get().try_into().unwrap_or(u32::MAX);
                let line = file.map(|file| (file, number));
                sequence.push(Row { at, line });
            }
        }
        Ok(())
    }

    fn file(&mut self, header: &Header<'a>, index: u64) -> Option<u32> {
        if self.known.len() >= MOST_FILES {
            return None;
        }
        let name = self.file_name(header, index)?;
        let next = self.known.len() as u32;
        Some(*self.known.entry(name).or_insert_with_key(|name| {
            self.lines.files.push(name.clone());
            next
        }))
    }

    /// The name given to the compiler: directory and file, without the
    /// directory that the compiler ran in, which is directory 0.
    fn file_name(&self, header: &Header<'a>, index: u64) -> Option<String> {
        let file = header.file(index)?;
        let name = self.text(file.path_name())?;
        let directory = match file.directory_index() {
            0 => None,
            _ => file.directory(header).and_then(|name| self.text(name)),
        };
        Some(match directory {
            Some(directory) if !name.starts_with('/') => format!("{directory}/{name}"),
            _ => name,
        })
    }

    fn text(&self, value: AttributeValue<Bytes<'a>>) -> Option<String> {
        let bytes = match value {
            AttributeValue::String(bytes) => bytes,
            AttributeValue::DebugLineStrRef(at) => self.line_strings.get_str(at).ok()?,
            AttributeValue::DebugStrRef(at) => self.strings.get_str(at).ok()?,
            _ => return None,
        };
        Some(bytes.to_string_lossy().into_owned())
    }
}
