//! JSON in which an object has each key once.
//!
//! Of a key that stands twice `serde_json` keeps the last value and says nothing, so that a
//! request would do something else than it says. RFC 8259, section 4: "The names within an
//! object SHOULD be unique."

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads a value.
///
/// # Errors
///
/// It is no JSON, or ([`is_data`](serde_json::Error::is_data)) an object has a key twice.
pub fn parse(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text).map(|Unique(value)| value)
}

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                let key = crate::short(&key);
                return Err(A::Error::custom(format_args!("key `{key}` is there twice")));
            }
            let Unique(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serde_json_reads_is_read_the_same() {
        for text in [
            "null",
            "[true, -1, 18446744073709551615, 1.5e3, \"\\u00e9\", []]",
            r#"{"a": {"b": [{"a": 1}, {"a": 2}]}, "b": {}}"#,
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()).unwrap(), value, "{text}");
        }
        for text in ["", "{", "{} {}", "{1:2}"] {
            assert!(!parse(text.as_bytes()).unwrap_err().is_data(), "{text}");
        }
    }

    #[test]
    fn a_key_that_an_object_has_twice_is_named() {
        for text in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"b": [{"a": 1, "c": 2, "\u0061": null}]}"#,
        ] {
            let wrong = parse(text.as_bytes()).unwrap_err();
            assert!(wrong.is_data());
            assert!(
                wrong.to_string().starts_with("key `a` is there twice"),
                "{wrong}"
            );
        }
    }
}
