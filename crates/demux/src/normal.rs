//! `and`, `or` and `not` of alternatives.
//!
//! Every filter is brought into disjunctive normal form while it is read. That
//! can grow: `(a or b) and (c or d) and ...` doubles with each part. So there is
//! a bound on alternatives, and one on the work.

use super::filter::{Conjunction, Test};
use super::logic;
use super::shape::MAX_KEY_BYTES;

/// Most alternatives of a filter, and most exclusions of all of them together.
pub const MAX_ALTERNATIVES: usize = 65_536;

/// Most pairs of tests compared while one filter is read: about a second.
const MAX_STEPS: usize = 20_000_000;

/// Alternatives; none is "nothing matches".
pub(super) type Any = Vec<Conjunction>;

/// The bounds were reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooMuch {
    Alternatives,
    Fields,
    Steps,
}

/// What is left of the bound on work.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Budget {
    pub(super) const fn new() -> Self {
        Self(MAX_STEPS)
    }

    fn spend(&mut self, steps: usize) -> Result<(), TooMuch> {
        self.0 = self.0.checked_sub(steps).ok_or(TooMuch::Steps)?;
        Ok(())
    }

    /// Frames that match one of the two.
    pub(super) fn or(&mut self, one: Any, other: Any) -> Result<Any, TooMuch> {
        let mut any = one;
        any.extend(other);
        self.spend(any.len())?;
        any.sort_unstable();
        any.dedup();
        bounded(any)
    }

    /// Frames that match both.
    pub(super) fn and(
        &mut self,
        one: &[Conjunction],
        other: &[Conjunction],
    ) -> Result<Any, TooMuch> {
        let mut any = Vec::new();
        for a in one {
            for b in other {
                let size = a.tests.len() + b.tests.len();
                self.spend(size * (1 + a.not.len() + b.not.len()))?;
                let Some(both) = conjunction(a, b) else {
                    continue;
                };
                let bytes = both.tests.iter().filter(|test| !test.field.is_guard());
                if bytes.map(|test| test.field.width()).sum::<usize>() > MAX_KEY_BYTES {
                    return Err(TooMuch::Fields);
                }
                any.push(both);
                if any.len() > 2 * MAX_ALTERNATIVES {
                    return Err(TooMuch::Alternatives);
                }
            }
        }
        any.sort_unstable();
        any.dedup();
        bounded(any)
    }

    /// Frames that do not match.
    pub(super) fn not(&mut self, of: &[Conjunction]) -> Result<Any, TooMuch> {
        let mut any = vec![Conjunction::default()];
        // Alternatives without exclusions, nearly all, become one conjunction.
        for one in of {
            let mut fails: Any = one
                .not
                .iter()
                .map(|tests| Conjunction {
                    tests: tests.clone(),
                    not: Vec::new(),
                })
                .collect();
            if !one.tests.is_empty() {
                fails.push(Conjunction {
                    tests: Vec::new(),
                    not: vec![one.tests.clone()],
                });
            }
            any = self.and(&any, &fails)?;
        }
        Ok(any)
    }
}

fn bounded(any: Any) -> Result<Any, TooMuch> {
    let exclusions: usize = any.iter().map(|one| one.not.len()).sum();
    if any.len().max(exclusions) > MAX_ALTERNATIVES {
        return Err(TooMuch::Alternatives);
    }
    Ok(any)
}

/// Both at once; `None` if that is seen to be impossible. Exclusions that the
/// tests rule out anyway go, so that equal meanings become equal forms.
fn conjunction(a: &Conjunction, b: &Conjunction) -> Option<Conjunction> {
    let tests = logic::both(&a.tests, &b.tests)?;
    let mut not = Vec::new();
    for exclusion in a.not.iter().chain(&b.not) {
        if logic::both(&tests, exclusion).is_none() {
            continue;
        }
        let open: Vec<Test> = exclusion
            .iter()
            .filter(|test| !tests.iter().any(|known| logic::covers(known, test)))
            .copied()
            .collect();
        if open.is_empty() {
            return None;
        }
        not.push(open);
    }
    not.sort_unstable();
    not.dedup();
    Some(Conjunction { tests, not })
}
