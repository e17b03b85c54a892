//! Types of functions that are called by number or through a table.
//!
//! A call must stop if the function has another type than the call says. In
//! the encoded module Wasmtime compares types, but references have become
//! numbers there, so that two of the author's types can look alike. A call of
//! such a type goes through a table of its own that holds only the functions
//! that have it; every other entry is null, which stops with the same cause.

use super::ir::{Module, OpKind};
use std::collections::{BTreeMap, HashMap, HashSet};
use wasmparser::Operator;

/// Where a call finds its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Source {
    /// A constant table, by index.
    Table(u32),
    /// A number: [`OpKind::CallNumber`].
    Number,
}

/// What a call operation needs: where its function is, and its type.
pub(super) fn indirect(kind: &OpKind<'_>) -> Option<(Source, u32)> {
    match kind {
        OpKind::Wasm(Operator::CallIndirect {
            type_index,
            table_index,
        }) => Some((Source::Table(*table_index), *type_index)),
        OpKind::CallNumber { type_index } => Some((Source::Number, *type_index)),
        _ => None,
    }
}

/// The tables of the encoded module that calls use.
pub(super) struct CallTables {
    /// By type: whether it looks like another of the author's types.
    ambiguous: Vec<bool>,
    /// Index of each table beside the author's own, by what it holds; `None`
    /// as type means all.
    added: BTreeMap<(Source, Option<u32>), u32>,
}

impl CallTables {
    /// Looks at each call of the module.
    pub(super) fn new(module: &Module<'_>) -> Self {
        let mut first = HashMap::new();
        let mut several = HashSet::new();
        for (ty, canonical) in module.types.iter().zip(&module.canonical) {
            if first.entry(ty).or_insert(canonical) != &canonical {
                several.insert(ty);
            }
        }
        let ambiguous = module.types.iter().map(|ty| several.contains(ty));
        let mut this = Self {
            ambiguous: ambiguous.collect(),
            added: BTreeMap::new(),
        };
        let mut next = module.tables.len() as u32;
        for op in module.functions.iter().flat_map(|f| &f.code) {
            let Some((source, type_index)) = indirect(&op.kind) else {
                continue;
            };
            let key = this.key(module, source, type_index);
            if key == (source, None) && source != Source::Number {
                continue;
            }
            this.added.entry(key).or_insert_with(|| {
                next += 1;
                next - 1
            });
        }
        this
    }

    fn key(&self, module: &Module<'_>, source: Source, ty: u32) -> (Source, Option<u32>) {
        let ty = ty as usize;
        (source, self.ambiguous[ty].then(|| module.canonical[ty]))
    }

    /// How many tables are there for one type only.
    pub(super) fn typed(&self) -> usize {
        self.added.keys().filter(|(_, ty)| ty.is_some()).count()
    }

    /// Index of the table that a call goes through.
    pub(super) fn table(&self, module: &Module<'_>, source: Source, ty: u32) -> u32 {
        let added = self.added.get(&self.key(module, source, ty)).copied();
        added.unwrap_or_else(|| match source {
            Source::Table(index) => index,
            Source::Number => unreachable!("every call was looked at"),
        })
    }

    /// Entries of the tables that were added, in their order.
    pub(super) fn contents(&self, module: &Module<'_>) -> Vec<Vec<Option<u32>>> {
        let mut tables: Vec<_> = self.added.iter().collect();
        tables.sort_by_key(|(_, index)| **index);
        let tables = tables.into_iter().map(|((source, ty), _)| {
            let mut entries = match source {
                Source::Table(index) => module.tables[*index as usize].entries.clone(),
                Source::Number => by_number(module),
            };
            if let Some(ty) = ty {
                for entry in &mut entries {
                    *entry = entry.filter(|f| canonical_of(module, *f) == *ty);
                }
            }
            entries
        });
        tables.collect()
    }
}

/// Which function each number means.
fn by_number(module: &Module<'_>) -> Vec<Option<u32>> {
    let number = super::references::of_function;
    let most = module.referenced.last().copied().map_or(0, number);
    let mut entries = vec![None; most as usize + 1];
    for function in &module.referenced {
        entries[number(*function) as usize] = Some(*function);
    }
    entries
}

/// The type of a function, as the author's file tells types apart.
pub(super) fn canonical_of(module: &Module<'_>, function: u32) -> u32 {
    let type_index = module.functions[function as usize].type_index;
    module.canonical[type_index as usize]
}
