//! A document of which its type says everything.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why a document is not that of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inexact {
    /// It cannot be read at all.
    #[error("the document cannot be read: {0}")]
    Unread(String),
    /// What was read says something else at this place.
    #[error("the document has {there} at `{place}`, and its type {read}")]
    Differs {
        /// The keys and positions that lead there.
        place: String,
        /// What the document has.
        there: String,
        /// What the type has.
        read: String,
    },
}

/// Reads a document into its type, and refuses it unless the type written again is the
/// same document: no key more, none less, no other value.
///
/// For tests; a client reads what it knows.
///
/// # Errors
///
/// [`Inexact`]: the first place where the two differ.
pub fn exact<T: Serialize + DeserializeOwned>(document: &Value) -> Result<T, Inexact> {
    let unread = |error: serde_json::Error| Inexact::Unread(error.to_string());
    let read = T::deserialize(document).map_err(unread)?;
    let again = serde_json::to_value(&read).map_err(unread)?;
    match difference(Some(document), Some(&again), "") {
        None => Ok(read),
        Some((place, there, read)) => Err(Inexact::Differs { place, there, read }),
    }
}

/// The first place where two documents differ, with what each has there.
fn difference(
    there: Option<&Value>,
    read: Option<&Value>,
    place: &str,
) -> Option<(String, String, String)> {
    match (there, read) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let more = other.keys().filter(|key| !one.contains_key(*key));
            one.keys()
                .chain(more)
                .find_map(|key| difference(one.get(key), other.get(key), &format!("{place}.{key}")))
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            let longer = one.len().max(other.len());
            (0..longer)
                .find_map(|at| difference(one.get(at), other.get(at), &format!("{place}[{at}]")))
        }
        (one, other) if one == other => None,
        (one, other) => {
            let shown = |value: Option<&Value>| {
                value.map_or_else(|| "nothing".to_owned(), Value::to_string)
            };
            let place = place.trim_start_matches('.').to_owned();
            Some((place, shown(one), shown(other)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Confirmed, Moved, Removed};
    use serde_json::json;

    #[test]
    fn a_key_too_many_or_too_few_is_named() {
        let says = |error: Inexact| error.to_string();
        let more = json!({ "was_on_trial": true, "extra": [1] });
        assert_eq!(
            says(exact::<Confirmed>(&more).unwrap_err()),
            "the document has [1] at `extra`, and its type nothing"
        );
        let fewer = json!({ "path": "p", "tier": "user", "switch_ns": 0 });
        assert_eq!(
            says(exact::<Moved>(&fewer).unwrap_err()),
            "the document has nothing at `bypass`, and its type null"
        );
        let none = says(exact::<Confirmed>(&json!({})).unwrap_err());
        assert!(none.contains("missing field `was_on_trial`"), "{none}");
        let exactly = json!({ "removed": ["a"], "took_ns": 3 });
        assert_eq!(exact::<Removed>(&exactly).unwrap().took_ns, 3);
    }
}
