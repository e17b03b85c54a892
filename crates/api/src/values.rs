//! Values of requests that are of more than one type.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number or a text: a parameter of a handler (`Scalar<i64>`), an attribute of a path
/// (`Scalar<u64>`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Scalar<N> {
    /// A number.
    Number(N),
    /// A text.
    Text(String),
}

impl<'de, N: TryFrom<i128>> Deserialize<'de> for Scalar<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor(PhantomData))
    }
}

struct ScalarVisitor<N>(PhantomData<N>);

impl<N: TryFrom<i128>> ScalarVisitor<N> {
    fn number<E: Error>(&self, number: i128, found: Unexpected<'_>) -> Result<Scalar<N>, E> {
        let number = N::try_from(number).map_err(|_| E::invalid_value(found, self))?;
        Ok(Scalar::Number(number))
    }
}

impl<N: TryFrom<i128>> Visitor<'_> for ScalarVisitor<N> {
    type Value = Scalar<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if N::try_from(-1).is_ok() {
            "of 64 bits"
        } else {
            "from 0"
        };
        write!(f, "a whole number {least}, or a text")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar<N>, E> {
        self.number(number.into(), Unexpected::Unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar<N>, E> {
        self.number(number.into(), Unexpected::Signed(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar<N>, E> {
        Ok(Scalar::Text(text.to_owned()))
    }
}

/// The process that something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The one that asks.
    Caller,
    /// The one of this number in the node's PID namespace.
    Process(u32),
}

impl Owner {
    const CALLER: &str = "caller";
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Caller => serializer.serialize_str(Self::CALLER),
            Self::Process(pid) => serializer.serialize_u32(*pid),
        }
    }
}

impl<'de> Deserialize<'de> for Owner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OwnerVisitor)
    }
}

struct OwnerVisitor;

impl Visitor<'_> for OwnerVisitor {
    type Value = Owner;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the number of a process of the node's PID namespace, or `caller` for the process \
             that asks",
        )
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Owner, E> {
        let pid = u32::try_from(number);
        let pid = pid.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))?;
        Ok(Owner::Process(pid))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Owner, E> {
        match text {
            Owner::CALLER => Ok(Owner::Caller),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Owner {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Owner".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                { "type": "string", "const": Self::CALLER },
            ],
        })
    }
}
