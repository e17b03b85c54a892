//! Reads JSON into the types of requests, with errors that name the key.
//!
//! `serde_json::from_value` says "invalid type: string, expected a sequence", and not of
//! which key. This deserializer says what is wrong with which key, in the words of the
//! project, and takes a key that is `null` as if it were not there.

use std::fmt::Display;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, Expected, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Misread {
    /// What, in a line.
    pub message: String,
    /// The next step; may be empty.
    pub hint: String,
    /// The word that is there, and those that may be: for a suggestion as the next step.
    pub word: Option<(String, &'static [&'static str])>,
    /// Whether `message` still wants the key in front of it.
    of_key: bool,
}

impl Misread {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: String::new(),
            word: None,
            of_key: false,
        }
    }

    fn of_key(message: String) -> Self {
        Self {
            of_key: true,
            ..Self::new(message)
        }
    }

    fn at(mut self, key: &str) -> Self {
        if self.of_key {
            self.message = format!("`{}` {}", short(key), self.message);
            self.of_key = false;
        }
        self
    }
}

impl Error for Misread {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_value(found, expected)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Str(text) => format!("`{}`", short(text)),
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            Unexpected::Bool(value) => value.to_string(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "an object".to_owned(),
            _ => "null".to_owned(),
        };
        Self {
            hint: format!("it must be {}", plain(&expected.to_string())),
            ..Self::of_key(format!("cannot be {found}"))
        }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let word = short(variant);
        Self {
            word: Some((word.clone(), expected)),
            ..Self::of_key(format!("cannot be `{word}`"))
        }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let word = short(field);
        let unknown = Self::new(format!("unknown key `{word}`"));
        if expected.is_empty() {
            let hint = "there are no keys but `request`".to_owned();
            return Self { hint, ..unknown };
        }
        Self {
            word: Some((word, expected)),
            ..unknown
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the request needs `{field}`"))
    }
}

/// Serde's words for a type, in ours.
fn plain(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "an object",
        "a boolean" => "true or false",
        "path string" => "a string",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number from 0",
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    }
}

/// What is longer is no name, and shown in part.
const LONG: usize = 64;

/// A text of somebody, as much of it as a line can hold.
#[must_use]
pub fn short(text: &str) -> String {
    let mut chars = text.char_indices();
    match chars.nth(LONG) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
    }
}

/// Reads an object.
pub(crate) fn object<T: DeserializeOwned>(map: Map<String, Value>) -> Result<T, Misread> {
    T::deserialize(Reader(Value::Object(map)))
}

/// The keys that an object of this type may have.
#[must_use]
pub(crate) fn keys<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // It fails once it has said which.
    let _ = T::deserialize(Keys(&mut keys));
    keys
}

/// A value that is read.
struct Reader(Value);

impl<'de> Deserializer<'de> for Reader {
    type Error = Misread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => {
                if let Some(number) = number.as_u64() {
                    visitor.visit_u64(number)
                } else if let Some(number) = number.as_i64() {
                    visitor.visit_i64(number)
                } else {
                    visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN))
                }
            }
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => visitor.visit_seq(Items(items.into_iter())),
            Value::Object(map) => visitor.visit_map(Entries {
                entries: map.into_iter(),
                value: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// A list is no object, though serde would read one as such.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        match self.0 {
            Value::Array(_) => Err(Misread::invalid_type(Unexpected::Seq, &visitor)),
            Value::Object(mut map) => {
                map.retain(|key, value| !value.is_null() || !fields.contains(&key.as_str()));
                Self(Value::Object(map)).deserialize_any(visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misread> {
        visitor.visit_newtype_struct(self)
    }

    /// Enums are words.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(Word(word)),
            _ => Err(Misread::of_key("must be a word".to_owned())),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// The items of a list.
struct Items(std::vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for Items {
    type Error = Misread;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Misread> {
        let item = self.0.next();
        item.map(|item| seed.deserialize(Reader(item))).transpose()
    }
}

/// The entries of an object.
struct Entries {
    entries: serde_json::map::IntoIter,
    value: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = Misread;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Misread> {
        self.value = self.entries.next();
        let key = self.value.as_ref().map(|(key, _)| key.as_str());
        key.map(|key| seed.deserialize(StrDeserializer::new(key)))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misread> {
        let (key, value) = self.value.take().expect("serde asks for the key first");
        seed.deserialize(Reader(value))
            .map_err(|misread| misread.at(&key))
    }
}

/// A word, which stands for a variant.
struct Word(String);

impl<'de> EnumAccess<'de> for Word {
    type Error = Misread;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Misread> {
        let variant = seed.deserialize(StrDeserializer::new(&self.0))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Word {
    type Error = Misread;

    fn unit_variant(self) -> Result<(), Misread> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Misread> {
        Err(Misread::custom("a word stands for nothing else"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Misread> {
        Err(Misread::custom("a word stands for nothing else"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Misread> {
        Err(Misread::custom("a word stands for nothing else"))
    }
}

/// Notes the keys that a struct may have, and reads nothing.
struct Keys<'k>(&'k mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Keys<'_> {
    type Error = Misread;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Misread> {
        Err(Misread::new("there is nothing to read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Order {
        dish: String,
        #[serde(default)]
        sides: Vec<String>,
        table: Option<u16>,
        #[serde(default)]
        notes: BTreeMap<String, u64>,
        also: Option<Box<Self>>,
    }

    fn read(value: Value) -> Result<Order, Misread> {
        match value {
            Value::Object(map) => object(map),
            _ => unreachable!("the tests give objects"),
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_key() {
        for (value, says, hint) in [
            (json!({}), "the request needs `dish`", ""),
            (
                json!({ "dish": 1 }),
                "`dish` cannot be 1",
                "it must be a string",
            ),
            (json!({ "dish": null }), "the request needs `dish`", ""),
            (
                json!({ "dish": "a", "sides": "b" }),
                "`sides` cannot be `b`",
                "it must be a list",
            ),
            (
                json!({ "dish": "a", "sides": [1] }),
                "`sides` cannot be 1",
                "it must be a string",
            ),
            (
                json!({ "dish": "a", "table": 65536 }),
                "`table` cannot be 65536",
                "it must be a whole number from 0 to 65535",
            ),
            (
                json!({ "dish": "a", "table": -1.5 }),
                "`table` cannot be -1.5",
                "it must be a whole number from 0 to 65535",
            ),
            (
                json!({ "dish": "a", "notes": { "b": null } }),
                "`b` cannot be null",
                "it must be a whole number from 0",
            ),
            (
                json!({ "dish": "a", "also": [] }),
                "`also` cannot be a list",
                "it must be an object",
            ),
            (
                json!({ "dish": "a", "also": { "dish": true } }),
                "`dish` cannot be true",
                "it must be a string",
            ),
            (json!({ "dish": "a", "sdes": [] }), "unknown key `sdes`", ""),
            (
                json!({ "dish": "a", "sdes": null }),
                "unknown key `sdes`",
                "",
            ),
            (
                json!({ "dish": "a", "also": { "b": 1 } }),
                "unknown key `b`",
                "",
            ),
        ] {
            let wrong = read(value.clone()).unwrap_err();
            assert_eq!((&*wrong.message, &*wrong.hint), (says, hint), "{value}");
        }
        let near = read(json!({ "dish": "a", "sdes": [] })).unwrap_err().word;
        assert_eq!(near.unwrap().0, "sdes");
    }

    #[test]
    fn a_known_key_that_is_null_is_not_there() {
        let nulls = json!({ "dish": "a", "sides": null, "table": null, "notes": null });
        let order = read(nulls).unwrap();
        assert_eq!(order, read(json!({ "dish": "a" })).unwrap());
    }

    #[test]
    fn a_long_word_is_shown_in_part() {
        let long = "x".repeat(10_000);
        let said = read(json!({ long: 1 })).unwrap_err().message;
        assert!(said.len() < 120, "{said}");
    }

    #[test]
    fn the_keys_of_a_type_are_its_fields() {
        assert_eq!(keys::<Order>(), ["dish", "sides", "table", "notes", "also"]);
    }
}
