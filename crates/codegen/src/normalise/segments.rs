//! Tables and segments, as they are after instantiation.

use super::error::NormaliseError;
use super::ir::{Data, Table};
use super::limits::Limits;
use super::read::{Reader, unsupported, within};
use super::references::of_function;
use ashway_abi::memory::WASM_PAGE;
use wasmparser::{
    DataKind, DataSectionReader, ElementItems, ElementKind, ElementSectionReader, TableInit,
    TableSectionReader,
};

/// Sizes of tables, before anything is allocated for them.
pub(super) fn check_tables(
    section: &TableSectionReader<'_>,
    limits: &Limits,
) -> Result<(), NormaliseError> {
    let mut entries = 0_u64;
    for table in section.clone() {
        entries = entries.saturating_add(table?.ty.initial);
        within("table entries", entries as usize, limits.table_entries)?;
    }
    Ok(())
}

/// Tables full of nulls.
pub(super) fn tables(
    reader: &mut Reader<'_, '_>,
    section: TableSectionReader<'_>,
) -> Result<(), NormaliseError> {
    for table in section.into_iter_with_offsets() {
        let (at, table) = table?;
        if let TableInit::Expr(_) = table.init {
            return unsupported("a table with an initial value", at);
        }
        reader.table_maxima.push(table.ty.maximum);
        reader.module.tables.push(Table {
            entries: vec![None; table.ty.initial as usize],
            place: None,
        });
    }
    Ok(())
}

/// Element segments; active ones go into the tables at once.
pub(super) fn elements(
    reader: &mut Reader<'_, '_>,
    section: ElementSectionReader<'_>,
) -> Result<(), NormaliseError> {
    let mut total = 0;
    for element in section {
        let element = element?;
        let at = element.range.start as u32;
        total += match &element.items {
            ElementItems::Functions(items) => items.count() as usize,
            ElementItems::Expressions(_, items) => items.count() as usize,
        };
        within("table entries", total, reader.limits.table_entries)?;
        let mut items = items(reader, element.items, at)?;
        match element.kind {
            ElementKind::Passive => {}
            ElementKind::Declared => items.clear(),
            ElementKind::Active {
                table_index,
                offset_expr,
            } => {
                let from = reader.constant(&offset_expr)? as usize;
                let table = &mut reader.module.tables[table_index.unwrap_or(0) as usize];
                let Some(room) = table.entries.get_mut(from..from + items.len()) else {
                    let what = format!("element segment {}", reader.elements.len());
                    return Err(NormaliseError::Segment { what, at });
                };
                for (entry, number) in room.iter_mut().zip(items.drain(..)) {
                    *entry = number.checked_sub(of_function(0));
                }
            }
        }
        reader.elements.push(items);
    }
    Ok(())
}

/// A segment's items as numbers.
fn items(
    reader: &mut Reader<'_, '_>,
    items: ElementItems<'_>,
    at: u32,
) -> Result<Vec<u32>, NormaliseError> {
    let mut found = Vec::new();
    match items {
        ElementItems::Functions(functions) => {
            for function in functions {
                let function = reader.own_function(function?, at)?;
                reader.module.referenced.push(function);
                found.push(of_function(function));
            }
        }
        ElementItems::Expressions(_, expressions) => {
            for expression in expressions {
                found.push(reader.constant(&expression?)? as u32);
            }
        }
    }
    Ok(found)
}

/// Data segments, borrowed from the file.
pub(super) fn data<'a>(
    reader: &mut Reader<'a, '_>,
    section: DataSectionReader<'a>,
) -> Result<(), NormaliseError> {
    for data in section {
        let data = data?;
        let number = reader.data.len();
        let DataKind::Active { offset_expr, .. } = data.kind else {
            reader.data.push(data.data);
            continue;
        };
        reader.data.push(&[]);
        let offset = reader.constant(&offset_expr)? as u32;
        let end = offset as usize + data.data.len();
        if end > reader.module.initial_pages as usize * WASM_PAGE {
            let what = format!("data segment {number}");
            let at = data.range.start as u32;
            return Err(NormaliseError::Segment { what, at });
        }
        reader.module.data.push(Data {
            offset,
            bytes: data.data,
        });
    }
    Ok(())
}
