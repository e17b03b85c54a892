//! Every cycle has an end: it takes fuel or ticks, or its index has a bound.
//!
//! Without the blocks that take fuel or tick, what is left of the graph may
//! have only cycles of two kinds, both in trusted code. *Counted:* all of a
//! strongly connected part's cycles pass a place where one register, or one
//! scratch word of the context, grows by a constant and stays below
//! [`LOOP_MOST`](super::step::LOOP_MOST), and nothing else in that part writes
//! it. *Contended:* all pass an exchange on a ring that failed, so another CPU
//! went on.

use super::graph::Graph;
use super::step::Facts;

/// The first instruction of a block on a cycle without a bound.
pub(super) fn unbounded(graph: &Graph, facts: &[Facts]) -> Option<usize> {
    let free = |block: usize| {
        let facts = &facts[block];
        facts.reached && facts.charges + facts.ticks == 0
    };
    let parts = cycles(graph, &free);
    parts
        .into_iter()
        .find(|part| !is_bounded(graph, facts, part))
        .map(|part| graph.blocks[part[0]].start)
}

fn is_bounded(graph: &Graph, facts: &[Facts], part: &[usize]) -> bool {
    let mut members = vec![false; facts.len()];
    for block in part {
        members[*block] = true;
    }
    let acyclic_without = |cut: &dyn Fn(&Facts) -> bool| {
        let inside = |block: usize| members[block] && !cut(&facts[block]);
        cycles(graph, &inside).is_empty()
    };
    let written = part
        .iter()
        .fold(0, |all, block| all | facts[*block].written);
    let words = part
        .iter()
        .fold(0, |all, block| all | facts[*block].words_written);
    acyclic_without(&|facts| facts.contends)
        || (0..10).any(|reg| {
            let bit = 1 << reg;
            written & bit == 0 && acyclic_without(&|facts| facts.grown & bit != 0)
        })
        || (0..8).any(|word| {
            let bit = 1 << word;
            words & bit == 0 && acyclic_without(&|facts| facts.words_grown & bit != 0)
        })
}

/// The strongly connected parts that have a cycle, of the graph without the
/// blocks that are not `inside`: Tarjan, "Depth-first search and linear graph
/// algorithms" (1972), without recursion.
fn cycles(graph: &Graph, inside: &dyn Fn(usize) -> bool) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let count = graph.blocks.len();
    let (mut index, mut low) = (vec![NEW; count], vec![NEW; count]);
    let mut open = vec![false; count];
    let mut path: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    let mut next = 0;
    for root in 0..count {
        if index[root] != NEW || !inside(root) {
            continue;
        }
        let mut chain = vec![(root, graph.blocks[root].ways_out())];
        while let Some((block, ways)) = chain.last_mut() {
            let block = *block;
            if index[block] == NEW {
                (index[block], low[block]) = (next, next);
                next += 1;
                open[block] = true;
                path.push(block);
            }
            match ways.find(|to| inside(*to)) {
                Some(to) if index[to] == NEW => {
                    chain.push((to, graph.blocks[to].ways_out()));
                }
                Some(to) if open[to] => low[block] = low[block].min(index[to]),
                Some(_) => {}
                None => {
                    chain.pop();
                    if let Some((above, _)) = chain.last() {
                        low[*above] = low[*above].min(low[block]);
                    }
                    if low[block] == index[block] {
                        let begin = path.iter().rposition(|b| *b == block).unwrap_or(0);
                        let part = path.split_off(begin);
                        for block in &part {
                            open[*block] = false;
                        }
                        let loops = graph.blocks[block].ways_out().any(|to| to == block);
                        if part.len() > 1 || loops {
                            found.push(part);
                        }
                    }
                }
            }
        }
    }
    found
}
