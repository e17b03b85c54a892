//! Which calls can come back to their own function.
//!
//! Such a call takes room on the call stack ([`OpKind::Push`]) and gives it
//! back afterwards, and both tiers count that room alike, so that recursion
//! stops at the same call in both. A call can come back if caller and callee
//! are in one strongly connected component of the call graph. A call through a
//! constant table can reach the entries of its type, a call by number all of
//! [`Module::referenced`] of its type: each such set is a node of its own, so
//! that the graph is not larger than the module.

use super::identity::{Source, canonical_of, indirect};
use super::ir::{Module, Op, OpKind};
use crate::components::components;
use std::collections::HashMap;
use wasmparser::Operator;

/// A function takes one slot more for so many operations. Wasmtime's optimiser
/// may keep a value from before a call for use behind it where the function
/// would compute it again; such a value takes about three operations to write
/// and 8 bytes of Wasmtime's stack. With this, 256 bytes for each slot are
/// enough there, and the count of slots is what stops recursion in both tiers.
const OPERATIONS_PER_SLOT: usize = 64;

/// Puts [`OpKind::Push`] and [`OpKind::Pop`] around each call that can come
/// back. `heights` says for each function how many operands it has at most.
pub(super) fn mark(module: &mut Module<'_>, heights: &[u32]) {
    let mut graph = Graph::new(module);
    let nodes = graph.edges.len();
    let component = {
        let edges = |node: usize| std::mem::take(&mut graph.edges[node]);
        let mut numbers = vec![0; nodes];
        for (members, number) in components(nodes, 0..nodes, edges).iter().zip(0..) {
            for member in members {
                numbers[*member] = number;
            }
        }
        numbers
    };
    for (caller, height) in heights.iter().enumerate() {
        let ty = &module.types[module.functions[caller].type_index as usize];
        let params = ty.params().len();
        let function = &mut module.functions[caller];
        let kept = function.code.len() / OPERATIONS_PER_SLOT;
        let slots = 1 + (params + function.locals.len() + kept) as u32 + height;
        let comes_back = |op: &Op<'_>| {
            let target = graph.target(&module.canonical, &op.kind);
            target.is_some_and(|target| component[target] == component[caller])
        };
        if !function.code.iter().any(comes_back) {
            continue;
        }
        let mut code = Vec::with_capacity(function.code.len());
        for op in std::mem::take(&mut function.code) {
            let at = op.at;
            let around = |kind| Op { kind, at };
            if comes_back(&op) {
                let push = around(OpKind::Push { slots });
                code.extend([push, op, around(OpKind::Pop { slots })]);
            } else {
                code.push(op);
            }
        }
        function.code = code;
    }
}

/// Functions by their indices, then sets of functions.
struct Graph {
    edges: Vec<Vec<usize>>,
    /// Nodes of the sets that calls by number or through a table can reach.
    sets: HashMap<(Source, u32), usize>,
}

impl Graph {
    fn new(module: &Module<'_>) -> Self {
        let mut this = Self {
            edges: vec![Vec::new(); module.functions.len()],
            sets: HashMap::new(),
        };
        for (table, number) in module.tables.iter().zip(0..) {
            if table.place.is_none() {
                for function in table.entries.iter().flatten() {
                    this.add(module, Source::Table(number), *function);
                }
            }
        }
        for function in &module.referenced {
            this.add(module, Source::Number, *function);
        }
        for (function, caller) in module.functions.iter().zip(0..) {
            for op in &function.code {
                if let Some(target) = this.target(&module.canonical, &op.kind) {
                    this.edges[caller].push(target);
                }
            }
        }
        this
    }

    /// Adds a function to the set of its type.
    fn add(&mut self, module: &Module<'_>, source: Source, function: u32) {
        let key = (source, canonical_of(module, function));
        let set = *self.sets.entry(key).or_insert_with(|| {
            self.edges.push(Vec::new());
            self.edges.len() - 1
        });
        self.edges[set].push(function as usize);
    }

    /// The node that a call leads to; `None` for what is no call, or always
    /// stops.
    fn target(&self, canonical: &[u32], kind: &OpKind<'_>) -> Option<usize> {
        if let OpKind::Wasm(Operator::Call { function_index }) = kind {
            return Some(*function_index as usize);
        }
        let (source, type_index) = indirect(kind)?;
        let key = (source, canonical[type_index as usize]);
        self.sets.get(&key).copied()
    }
}
