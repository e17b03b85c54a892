//! Tables and segments, as they are after instantiation.

use super::error::NormaliseError;
use super::ir::{Data, Element, Module, Table};
use super::limits::Limits;
use super::read::{Reader, constant, is_function, unsupported, within};
use ashway_abi::memory::WASM_PAGE;
use wasmparser::{
    ConstExpr, DataKind, DataSectionReader, ElementItems, ElementKind, ElementSectionReader,
    Operator, TableInit, TableSectionReader,
};

/// Sizes and types of tables, before anything is allocated for them.
pub(super) fn check_tables(
    section: &TableSectionReader<'_>,
    limits: &Limits,
) -> Result<(), NormaliseError> {
    let mut entries = 0_u64;
    for table in section.clone().into_iter_with_offsets() {
        let (at, table) = table?;
        if !is_function(table.ty.element_type) {
            return unsupported(format!("a table of {}", table.ty.element_type), at);
        }
        entries = entries.saturating_add(table.ty.initial);
        within("table entries", entries as usize, limits.table_entries)?;
    }
    Ok(())
}

/// Tables full of nulls.
pub(super) fn tables(
    module: &mut Module<'_>,
    section: TableSectionReader<'_>,
) -> Result<(), NormaliseError> {
    for table in section.into_iter_with_offsets() {
        let (at, table) = table?;
        if let TableInit::Expr(_) = table.init {
            return unsupported("a table with an initial value", at);
        }
        module.tables.push(Table {
            entries: vec![None; table.ty.initial as usize],
            mutable: false,
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
        let items = items(reader, element.items, at)?;
        let mut kept = Element {
            passive: false,
            items: Vec::new(),
        };
        match element.kind {
            ElementKind::Passive => {
                kept.passive = true;
                kept.items = items;
            }
            ElementKind::Declared => {}
            ElementKind::Active {
                table_index,
                offset_expr,
            } => {
                let from = constant(&offset_expr)? as usize;
                let table = &mut reader.module.tables[table_index.unwrap_or(0) as usize];
                let Some(room) = table.entries.get_mut(from..from + items.len()) else {
                    let number = reader.module.elements.len();
                    let what = format!("element segment {number}");
                    return Err(NormaliseError::Segment { what, at });
                };
                room.copy_from_slice(&items);
            }
        }
        reader.module.elements.push(kept);
    }
    Ok(())
}

fn items(
    reader: &Reader<'_, '_>,
    items: ElementItems<'_>,
    at: u32,
) -> Result<Vec<Option<u32>>, NormaliseError> {
    let mut found = Vec::new();
    match items {
        ElementItems::Functions(functions) => {
            for function in functions {
                found.push(Some(reader.own_function(function?, at)?));
            }
        }
        ElementItems::Expressions(ty, expressions) => {
            if !is_function(ty) {
                return unsupported(format!("an element segment of {ty}"), u64::from(at));
            }
            for expression in expressions {
                found.push(item(reader, &expression?)?);
            }
        }
    }
    Ok(found)
}

fn item(reader: &Reader<'_, '_>, expr: &ConstExpr<'_>) -> Result<Option<u32>, NormaliseError> {
    let (operator, at) = expr.get_operators_reader().read_with_offset()?;
    match operator {
        Operator::RefNull { .. } => Ok(None),
        Operator::RefFunc { function_index } => {
            Ok(Some(reader.own_function(function_index, at as u32)?))
        }
        _ => unsupported(format!("constant expression {operator:?}"), at),
    }
}

/// Data segments, borrowed from the file.
pub(super) fn data<'a>(
    module: &mut Module<'a>,
    section: DataSectionReader<'a>,
) -> Result<(), NormaliseError> {
    for data in section {
        let data = data?;
        let offset = match data.kind {
            DataKind::Passive => None,
            DataKind::Active { offset_expr, .. } => {
                let offset = constant(&offset_expr)? as u32;
                let end = offset as usize + data.data.len();
                if end > module.initial_pages as usize * WASM_PAGE {
                    let what = format!("data segment {}", module.data.len());
                    let at = data.range.start as u32;
                    return Err(NormaliseError::Segment { what, at });
                }
                Some(offset)
            }
        };
        module.data.push(Data {
            offset,
            bytes: data.data,
        });
    }
    Ok(())
}
