//! In which tier messages ran.

use serde::{Deserialize, Serialize};

/// Messages by the tier in which they ran. No message is in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RanIn {
    /// Messages that ran in the kernel tier.
    pub kernel: u64,
    /// Messages that ran in the user tier.
    pub user: u64,
}

impl RanIn {
    /// All of them.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.kernel + self.user
    }

    /// The share of the kernel tier, for people: `97.0 %`. It is rounded down, and `0 %` and
    /// `100 %` are said of none and of all alone. None of no messages.
    #[must_use]
    pub fn share_of_kernel(self) -> Option<String> {
        let per_mille = match u128::from(self.all()) {
            0 => return None,
            all => u128::from(self.kernel) * 1000 / all,
        };
        Some(match (self.kernel, self.user) {
            (0, _) => "0 %".to_owned(),
            (_, 0) => "100 %".to_owned(),
            // Some ran there, even if they are less than one in a thousand.
            _ => format!("{}.{} %", per_mille.max(1) / 10, per_mille.max(1) % 10),
        })
    }
}

impl std::ops::AddAssign for RanIn {
    fn add_assign(&mut self, other: Self) {
        self.kernel += other.kernel;
        self.user += other.user;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_and_all_are_not_said_of_some() {
        for (kernel, user, says) in [
            (0, 0, None),
            (0, 5, Some("0 %")),
            (5, 0, Some("100 %")),
            (97, 3, Some("97.0 %")),
            (1, 2, Some("33.3 %")),
            (1, 1_000_000, Some("0.1 %")),
            (1_000_000, 1, Some("99.9 %")),
            (u64::MAX / 2, u64::MAX / 2, Some("50.0 %")),
        ] {
            let share = RanIn { kernel, user }.share_of_kernel();
            assert_eq!(share.as_deref(), says, "{kernel} {user}");
        }
    }
}
