//! What reaches each other in a call graph.
//!
//! The checker has its own (`check/bound.rs`): it shares no judgement with the
//! translator.

/// The strongly connected components of what `roots` reach, each behind all that
/// it reaches itself. Nodes are `0..nodes`; `edges` is asked once for each node
/// that is reached.
///
/// R. Tarjan, "Depth-first search and linear graph algorithms", 1972, with a
/// stack of its own: the author of a file decides how deep its graph is. Linear
/// in the graph.
pub(crate) fn components(
    nodes: usize,
    roots: impl IntoIterator<Item = usize>,
    mut edges: impl FnMut(usize) -> Vec<usize>,
) -> Vec<Vec<usize>> {
    /// The number of a node whose component is complete.
    const DONE: usize = usize::MAX;
    let mut components = Vec::new();
    // When each node was first seen.
    let mut numbers: Vec<Option<usize>> = vec![None; nodes];
    // For each, the first of its open component that is known to be reached.
    let mut lowest = vec![DONE; nodes];
    let mut open = Vec::new();
    let mut seen = 0;
    for root in roots {
        let mut next = Some(root).filter(|root| numbers[*root].is_none());
        // Each node on the way, and what of its edges has not been followed.
        let mut way: Vec<(usize, std::vec::IntoIter<usize>)> = Vec::new();
        loop {
            if let Some(node) = next.take() {
                numbers[node] = Some(seen);
                lowest[node] = seen;
                seen += 1;
                open.push(node);
                way.push((node, edges(node).into_iter()));
            }
            let Some((node, left)) = way.last_mut() else {
                break;
            };
            let node = *node;
            if let Some(to) = left.next() {
                match numbers[to] {
                    None => next = Some(to),
                    Some(DONE) => {}
                    Some(number) => lowest[node] = lowest[node].min(number),
                }
                continue;
            }
            way.pop();
            if let Some((before, _)) = way.last() {
                lowest[*before] = lowest[*before].min(lowest[node]);
            }
            if numbers[node] == Some(lowest[node]) {
                let first = open.iter().rposition(|member| *member == node);
                let component = open.split_off(first.expect("it is open"));
                for member in &component {
                    numbers[*member] = Some(DONE);
                }
                components.push(component);
            }
        }
    }
    components
}

#[cfg(test)]
mod tests {
    use super::components;

    #[test]
    fn components_are_what_reaches_and_is_reached_callees_first() {
        // 0 -> 1 -> 2 -> 1, 2 -> 3, 4 -> 4, 5 -> 0 -> 5.
        let graph: [&[usize]; 6] = [&[1, 5], &[2], &[1, 3], &[], &[4], &[0]];
        let edges = |node: usize| graph[node].to_vec();
        let all = components(6, 0..6, edges);
        assert_eq!(all, [vec![3], vec![1, 2], vec![0, 5], vec![4]]);
        assert_eq!(components(6, [1], edges), all[..2]);
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let last = 200_000;
        let circle = components(last, [0], |node| vec![(node + 1) % last]);
        assert_eq!(circle.len(), 1);
        let chain = components(last, [0], |node| {
            Vec::from_iter((node + 1 < last).then_some(node + 1))
        });
        assert_eq!((chain.len(), &chain[0]), (last, &vec![last - 1]));
    }
}
