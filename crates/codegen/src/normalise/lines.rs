//! Source lines from DWARF.
//!
//! Code addresses in a Wasm file's DWARF are offsets from the start of the code
//! section's contents ("DWARF for WebAssembly", section 2.1). Lines help
//! people and decide nothing, so whatever is broken is left out.

use super::ir::FileOffset;
use gimli::{AttributeValue, Dwarf, EndianSlice, LittleEndian, SectionId};
use std::collections::HashMap;

/// Rows kept at most: a hostile line program must not cost more than the file.
const MOST_ROWS: usize = 1 << 20;

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

    /// Reads what can be read.
    pub(super) fn read(sections: &Sections<'_>) -> Self {
        let mut lines = Self::default();
        // An error ends the reading; the rows found before it stand.
        let _ = lines.read_units(sections);
        // Where one sequence ends and the next begins, the beginning counts.
        lines.rows.sort_by_key(|row| (row.at, row.line.is_some()));
        lines
    }

    fn read_units(&mut self, sections: &Sections<'_>) -> gimli::Result<()> {
        let section = |id: SectionId| -> gimli::Result<Bytes<'_>> {
            let data = sections.sections.get(id.name()).copied().unwrap_or_default();
            Ok(EndianSlice::new(data, LittleEndian))
        };
        let dwarf = Dwarf::load(section)?;
        // Units may share or overlap line programs; reading each byte once is
        // what an honest file needs.
        let mut program_bytes = section(SectionId::DebugLine)?.len();
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let unit = dwarf.unit(header)?;
            let Some(program) = unit.line_program.clone() else {
                continue;
            };
            let len = program.header().raw_program_buf().len();
            let Some(rest) = program_bytes.checked_sub(len) else {
                return Ok(());
            };
            program_bytes = rest;
            self.read_program(&dwarf, &unit, program, sections.code_start)?;
        }
        Ok(())
    }

    fn read_program(
        &mut self,
        dwarf: &Dwarf<Bytes<'_>>,
        unit: &gimli::Unit<Bytes<'_>>,
        program: gimli::IncompleteLineProgram<Bytes<'_>>,
        code_start: FileOffset,
    ) -> gimli::Result<()> {
        let mut files = HashMap::new();
        let mut sequence = Vec::new();
        let mut rows = program.rows();
        while let Some((header, row)) = rows.next_row()? {
            if self.rows.len() + sequence.len() >= MOST_ROWS {
                return Ok(());
            }
            let at = u64::from(code_start).saturating_add(row.address());
            let at = FileOffset::try_from(at).unwrap_or(FileOffset::MAX);
            if row.end_sequence() {
                sequence.push(Row { at, line: None });
                // The linker gives code that it left out the address 0 or -1.
                let first = sequence[0].at;
                if first > code_start && at < FileOffset::MAX {
                    self.rows.append(&mut sequence);
                }
                sequence.clear();
            } else if let Some(number) = row.line() {
                // Rows without a line are the compiler's own code: they belong
                // to the row before.
                let file = *files.entry(row.file_index()).or_insert_with(|| {
                    let name = file_name(dwarf, unit, header, row);
                    self.file(name.unwrap_or_else(|| "?".into()))
                });
                let number = number.get().try_into().unwrap_or(u32::MAX);
                let line = Some((file, number));
                sequence.push(Row { at, line });
            }
        }
        Ok(())
    }

    fn file(&mut self, name: String) -> u32 {
        let known = self.files.iter().position(|file| *file == name);
        known.unwrap_or_else(|| {
            self.files.push(name);
            self.files.len() - 1
        }) as u32
    }
}

/// The name given to the compiler: directory and file, without the directory
/// the compiler ran in.
fn file_name(
    dwarf: &Dwarf<Bytes<'_>>,
    unit: &gimli::Unit<Bytes<'_>>,
    header: &gimli::LineProgramHeader<Bytes<'_>>,
    row: &gimli::LineRow,
) -> Option<String> {
    let text = |value: AttributeValue<Bytes<'_>>| {
        let text = dwarf.attr_string(unit, value).ok()?;
        Some(text.to_string_lossy().into_owned())
    };
    let file = row.file(header)?;
    let name = text(file.path_name())?;
    let compiled_in = unit.comp_dir.map(|dir| dir.to_string_lossy().into_owned());
    // Directory 0 is the one the compiler ran in.
    let directory = match file.directory_index() {
        0 => None,
        _ => file.directory(header).and_then(text),
    };
    let path = match directory {
        Some(directory) if !name.starts_with('/') => format!("{directory}/{name}"),
        _ => name,
    };
    let inside = compiled_in.and_then(|dir| {
        let rest = path.strip_prefix(&dir)?.strip_prefix('/')?;
        Some(rest.to_owned())
    });
    Some(inside.unwrap_or(path))
}
