//! The order of tests: shapes as a graph in which common guards are asked once.
//!
//! Shapes are tried in the table's order, but `udp` need not be tested for each
//! of them. From a list of shapes and the guards that each still has to pass,
//! the first shape's first guard is tested, and the answer simplifies the whole
//! list: what it implies is not asked again, and what it excludes is left out.
//! Equal lists are one node, so the graph grows with the lists that can arise
//! and not with the ways to them.

use std::collections::HashMap;

use ashway_demux::{Layer, Shape, Test};

use crate::bug::{self, Bug};

/// Most nodes with shared guards. Beyond, each shape asks for itself: shapes with
/// unrelated guards can give more lists than a program has room for.
const MOST_SHARED: usize = 4096;

/// Something that is the same for all entries of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Guard {
    /// The frame reaches so far.
    Layer(Layer),
    /// A constant test.
    Test(Test),
}

impl Guard {
    /// What this guard's answer says about another: `Some(true)` that it holds.
    fn implies(&self, holds: bool, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Layer(this), Self::Layer(other)) => match holds {
                true if other <= this => Some(true),
                false if other >= this => Some(false),
                _ => None,
            },
            (Self::Test(this), Self::Test(other)) if this.field == other.field => {
                let [mine, its] = [this, other].map(|test| u128::from_be_bytes(test.mask));
                let [value, wanted] = [this, other].map(|test| u128::from_be_bytes(test.value));
                let agree = (value ^ wanted) & mine & its == 0;
                match holds {
                    true if !agree => Some(false),
                    true if its & !mine == 0 => Some(true),
                    false if agree && (mine & !its == 0 || bug::is(Bug::DemuxGuardShared)) => {
                        Some(false)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// A step; the numbers are those of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// No shape has an entry for the frame.
    Miss,
    /// Goes to the first if the guard holds, else to the second.
    Ask(Guard, usize, usize),
    /// Looks for the shape's entry; goes on if there is none.
    Try(usize, usize),
}

/// Shapes by number, each with the guards that are left.
type List = Vec<(usize, Vec<Guard>)>;

/// The graph of these shapes, in an order in which every step leads forward; it
/// starts with the first. `known` decides guards that need no question.
pub(super) fn plan<'s>(
    shapes: impl Iterator<Item = &'s Shape> + Clone,
    known: impl Fn(&Guard) -> Option<bool>,
) -> Vec<Node> {
    let mut list: List = shapes
        .map(guards)
        .enumerate()
        .filter(|(_, guards)| guards.iter().all(|guard| known(guard) != Some(false)))
        .map(|(shape, guards)| {
            let open = guards.into_iter().filter(|guard| known(guard).is_none());
            (shape, open.collect())
        })
        .collect();
    if bug::is(Bug::DemuxEmitOrderInverted) {
        list.reverse();
    }
    let shared = Planner::run(list.clone(), true);
    shared.unwrap_or_else(|| Planner::run(list, false).expect("it is linear in the guards"))
}

fn guards(shape: &Shape) -> Vec<Guard> {
    let layer = match shape.layer() {
        Layer::Link => None,
        layer => Some(Guard::Layer(layer)),
    };
    let tests = shape.guards.iter().map(|test| Guard::Test(*test));
    layer.into_iter().chain(tests).collect()
}

/// Makes nodes, the later ones first.
struct Planner {
    share: bool,
    known: HashMap<List, usize>,
    nodes: Vec<Node>,
}

impl Planner {
    /// `None` if sharing makes too many nodes.
    fn run(list: List, share: bool) -> Option<Vec<Node>> {
        let mut planner = Self {
            share,
            known: HashMap::new(),
            nodes: Vec::new(),
        };
        planner.node(list)?;
        // From here on the last is the first.
        let mut nodes = planner.nodes;
        nodes.reverse();
        let place = |number: usize| nodes.len() - 1 - number;
        let turned = nodes.iter().map(|node| match *node {
            Node::Miss => Node::Miss,
            Node::Ask(guard, yes, no) => Node::Ask(guard, place(yes), place(no)),
            Node::Try(shape, next) => Node::Try(shape, place(next)),
        });
        Some(turned.collect())
    }

    /// The number of the node for `list`. Recursion is as deep as there are
    /// guards and shapes on one way through.
    fn node(&mut self, list: List) -> Option<usize> {
        if let Some(number) = self.known.get(&list) {
            return Some(*number);
        }
        let made = match list.first() {
            None => Node::Miss,
            Some((_, guards)) if !guards.is_empty() => {
                let guard = guards[0];
                // The likely answer last: its node then follows directly.
                let no = self.node(self.without(&list, &guard))?;
                let yes = self.node(self.with(&list, &guard))?;
                Node::Ask(guard, yes, no)
            }
            Some((shape, _)) => Node::Try(*shape, self.node(list[1..].to_vec())?),
        };
        if self.share && self.nodes.len() == MOST_SHARED {
            return None;
        }
        self.nodes.push(made);
        self.known.insert(list, self.nodes.len() - 1);
        Some(self.nodes.len() - 1)
    }

    fn with(&self, list: &List, guard: &Guard) -> List {
        if self.share {
            return simplified(list, guard, true);
        }
        let mut list = list.clone();
        list[0].1.remove(0);
        list
    }

    fn without(&self, list: &List, guard: &Guard) -> List {
        if self.share {
            return simplified(list, guard, false);
        }
        list[1..].to_vec()
    }
}

/// What is left of the list once the guard has been answered.
fn simplified(list: &List, guard: &Guard, holds: bool) -> List {
    let excluded = |other: &Guard| guard.implies(holds, other) == Some(false);
    list.iter()
        .filter(|(_, guards)| !guards.iter().any(excluded))
        .map(|(shape, guards)| {
            let open = guards
                .iter()
                .filter(|other| guard.implies(holds, other).is_none());
            (*shape, open.copied().collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashway_demux::Field;

    fn shape(guards: Vec<Test>) -> Shape {
        Shape {
            guards,
            not: Vec::new(),
            key: Vec::new(),
        }
    }

    fn protocol(number: u8) -> Test {
        Test::whole(Field::Protocol, [number])
    }

    #[test]
    fn a_common_guard_is_asked_once() {
        let udp = [protocol(17), protocol(17), protocol(17)];
        let shapes = udp.map(|test| shape(vec![test]));
        let network = Guard::Layer(Layer::Network);
        let nodes = plan(shapes.iter(), |_| None);
        assert_eq!(
            nodes,
            [
                Node::Ask(network, 1, 5),
                Node::Ask(Guard::Test(protocol(17)), 2, 5),
                Node::Try(0, 3),
                Node::Try(1, 4),
                Node::Try(2, 5),
                Node::Miss,
            ]
        );
    }

    #[test]
    fn an_answer_excludes_what_contradicts_it() {
        let shapes = [protocol(17), protocol(6)].map(|test| shape(vec![test]));
        let known = |guard: &Guard| matches!(guard, Guard::Layer(_)).then_some(true);
        let nodes = plan(shapes.iter(), known);
        // UDP is not TCP: behind the first shape there is nothing to ask.
        let miss = nodes.len() - 1;
        assert_eq!(nodes[1], Node::Try(0, miss));
        assert_eq!(nodes.len(), 5);
        // And what is known to fail is not there at all.
        assert_eq!(plan(shapes.iter(), |_| Some(false)), [Node::Miss]);
    }

    #[test]
    fn unrelated_guards_do_not_explode() {
        let bit = |field, bit: u32| {
            let mut mask = [0; 16];
            mask[..4].copy_from_slice(&(1_u32 << bit).to_be_bytes());
            Test::new(field, mask, mask)
        };
        let shapes: Vec<Shape> = (16..32)
            .map(|n| shape(vec![bit(Field::EtherType, n)]))
            .collect();
        let nodes = plan(shapes.iter(), |_| None);
        assert!(nodes.len() <= MOST_SHARED, "{}", nodes.len());
        let tried = nodes.iter().filter(|node| matches!(node, Node::Try(..)));
        assert!(tried.count() >= shapes.len());
    }
}
