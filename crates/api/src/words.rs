//! Words that mean the same in a request, in the configuration and in the commands.

use std::str::FromStr;

use ashway_abi::Grant;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that is none of the words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is one of {}", words.join(", "))]
pub struct WordError {
    /// The words there are.
    pub words: &'static [&'static str],
}

/// An enum of words: its `WORDS`, `word`, and how they are read and written.
macro_rules! words {
    ($(
        $(#[$doc:meta])*
        $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)? }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $type {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant),*
        }

        impl $type {
            /// The words and what each means.
            pub const WORDS: &'static [(&'static str, Self)] =
                &[$(($word, Self::$variant)),*];

            /// The word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }

        impl FromStr for $type {
            type Err = WordError;

            fn from_str(text: &str) -> Result<Self, WordError> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(WordError { words: &[$($word),*] }),
                }
            }
        }
    )*};
}

words! {
    /// What an instance's memory is made of.
    MemoryMode {
        /// An arena where the process may have one, else an array.
        #[default]
        Auto = "auto",
        /// A BPF arena.
        Arena = "arena",
        /// A mappable BPF array.
        Array = "array",
    }

    /// How many instances a handler has.
    Instances {
        /// One, which runs one message at a time, on all CPUs together.
        #[default]
        One = "one",
        /// One for each CPU, which runs the messages that arrive there.
        PerCpu = "per-cpu",
        /// One, which runs on all CPUs at once: its file has to be built for that.
        Parallel = "parallel",
    }

    /// Where a path's handler, or a relay, may run.
    Tier {
        /// In the kernel tier if it can be promoted, else in the user tier.
        #[default]
        Auto = "auto",
        /// In the kernel tier, or not at all.
        Kernel = "kernel",
        /// In the user tier.
        User = "user",
    }

    /// What happens to a message whose handler was stopped, if it was not changed.
    OnFault {
        /// The host's own stack gets it.
        #[default]
        Pass = "pass",
        /// It is dropped.
        Drop = "drop",
        /// The host's own stack gets it, and the handler leaves the kernel tier.
        Demote = "demote",
    }

    /// Which of a path's messages keep their order where some go to the user tier and others
    /// do not.
    OrderRule {
        /// Those of a flow: with the same addresses and ports.
        #[default]
        Flow = "flow",
        /// All of them.
        Path = "path",
        /// None: no message waits for another.
        None = "none",
    }
}

/// A [`Grant`], in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allow(pub Grant);

impl Allow {
    const WORDS: [&'static str; Grant::WORDS.len()] = {
        let mut words = [""; Grant::WORDS.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = Grant::WORDS[at].0;
            at += 1;
        }
        words
    };
}

impl FromStr for Allow {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let mut words = Grant::WORDS.iter();
        let found = words.find(|(word, _)| *word == text);
        found.map(|(_, grant)| Self(*grant)).ok_or(WordError {
            words: &Self::WORDS,
        })
    }
}

impl Serialize for Allow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.word())
    }
}

impl<'de> Deserialize<'de> for Allow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|WordError { words }| D::Error::unknown_variant(&text, words))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Allow {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Allow".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "enum": Self::WORDS })
    }
}
