//! What a running node can be asked.
//!
//! A request is one JSON object: `request` is its name, and its keys stand beside that.
//! Keys, words, limits and defaults are described in `docs/guide/control.md`; a test
//! compares that page with the types here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::{self, Ask, Inexact};
use crate::read::{self, Misread};
use crate::values::{Owner, Scalar};
use crate::words::{Allow, Instances, MemoryMode, OnFault, OrderRule, Tier};

/// The requests: the enum, their names, how each is read, and the type of its answer.
macro_rules! requests {
    ($($(#[$doc:meta])* $variant:ident = $name:literal -> $answer:ident),* $(,)?) => {
        /// A request.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "request")]
        pub enum Request {
            $($(#[$doc])* #[serde(rename = $name)] $variant($variant)),*
        }

        impl Request {
            /// The names of all requests.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// The keys that the request of this name may have beside `request`.
            #[must_use]
            pub fn keys(name: &str) -> Option<&'static [&'static str]> {
                match name {
                    $($name => Some(read::keys::<$variant>()),)*
                    _ => None,
                }
            }

            /// Whether a document is the answer to the request of this name, and its type
            /// says everything of it; `None` if there is no such request. For tests.
            #[must_use]
            pub fn exact_answer(name: &str, document: &Value) -> Option<Result<(), Inexact>> {
                match name {
                    $($name => {
                        let read = answer::exact::<answer::$answer>(document);
                        Some(read.map(|_| ()))
                    })*
                    _ => None,
                }
            }

            /// The JSON Schemas of the request of this name and of its answer.
            #[cfg(feature = "schema")]
            #[must_use]
            pub fn schemas(name: &str) -> Option<[schemars::Schema; 2]> {
                match name {
                    $($name => Some([
                        schemars::schema_for!($variant),
                        schemars::schema_for!(answer::$answer),
                    ]),)*
                    _ => None,
                }
            }

            fn of_name(
                name: &str,
                keys: serde_json::Map<String, Value>,
            ) -> Option<Result<Self, Misread>> {
                Some(match name {
                    $($name => read::object(keys).map(Self::$variant),)*
                    _ => return None,
                })
            }
        }

        $(impl From<$variant> for Request {
            fn from(request: $variant) -> Self {
                Self::$variant(request)
            }
        }

        impl Ask for $variant {
            type Answer = answer::$answer;
        })*
    };
}

requests! {
    /// The whole node.
    Status = "status" -> Status,
    /// Why a counter counts, a path is as it is, or a flow takes its path.
    Why = "why" -> Why,
    /// The demux of the interfaces.
    Demux = "demux" -> Demux,
    /// Ends the trial of `run --try`.
    Confirm = "confirm" -> Confirmed,
    /// Ends an operation that is under way.
    Cancel = "cancel" -> Operation,
    /// What [`Apply`] would change.
    Plan = "plan" -> Plan,
    /// Brings the node to a configuration.
    Apply = "apply" -> Plan,
    /// Loads a handler.
    Load = "load" -> Loaded,
    /// Puts another version in a handler's place.
    Swap = "swap" -> Swapped,
    /// Puts the version before in a handler's place.
    Rollback = "rollback" -> Swapped,
    /// Unloads a handler.
    Unload = "unload" -> Unloaded,
    /// Leads messages to a handler.
    Bind = "bind" -> Bound,
    /// Leads them back to the host.
    Unbind = "unbind" -> Unbound,
    /// Moves a path to the kernel tier.
    Promote = "promote" -> Moved,
    /// Moves a path to the user tier.
    Demote = "demote" -> Moved,
    /// Ends a path's bypass.
    Enable = "enable" -> Enabled,
    /// Creates paths from modules.
    Create = "create" -> Created,
    /// A path from a module and attributes.
    Show = "show" -> Path,
    /// Removes paths.
    Remove = "remove" -> Removed,
    /// The messages that stopped handlers.
    Faults = "faults" -> Faults,
    /// One of these, to be replayed.
    Fault = "fault" -> Replayable,
    /// The lines of a handler.
    Log = "log" -> Lines,
    /// A handler's memory.
    Memory = "memory" -> HandlerMemory,
    /// A handler's endpoint.
    Endpoint = "endpoint" -> EndpointPlace,
    /// A socket that tells what becomes of messages.
    Observe = "observe" -> Observing,
}

/// Why a value is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRequest {
    /// It has no name, or one that is none.
    #[error("there is no such request")]
    Unnamed,
    /// Its keys are wrong.
    #[error(transparent)]
    Misread(#[from] Misread),
}

impl NewPath {
    /// Reads a path from an object that stands by itself.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn read(value: Value) -> Result<Self, Misread> {
        match value {
            Value::Object(keys) => read::object(keys),
            _ => Err(Misread::new("a path is an object, `{\"module\": …}`")),
        }
    }
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// [`NoRequest`]: the first thing that is wrong.
    pub fn read(value: Value) -> Result<Self, NoRequest> {
        let Value::Object(mut keys) = value else {
            return Err(NoRequest::Unnamed);
        };
        let name = keys.remove("request");
        let name = name.as_ref().and_then(Value::as_str);
        let request = name.and_then(|name| Self::of_name(name, keys));
        Ok(request.ok_or(NoRequest::Unnamed)??)
    }
}

/// The whole node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Status {}

/// Why something is as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// A counter, a path, or a flow (`udp 10.0.0.1:5 > 10.0.0.2:7`).
    pub about: String,
    /// The path whose counter it is; without it, of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The interface where the flow arrives; the only one if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface: Option<String>,
}

/// The demux of the interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Demux {
    /// The interface; all if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface: Option<String>,
}

/// Ends the trial of `run --try`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Confirm {}

/// Ends an operation that waits; nothing has changed by then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Its number, which `status` shows.
    pub operation: u64,
}

/// What [`Apply`] would change; changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The configuration, by an absolute path: the node reads it.
    pub file: String,
}

/// Brings the node to a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// The configuration, by an absolute path: the node reads it.
    pub file: String,
}

/// Loads a handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The Wasm file, by an absolute path: the node reads it.
    pub file: String,
    /// Its name; the file's if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it may do beyond looking at messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Allow>,
    /// What its memory is made of.
    #[serde(default)]
    pub memory: MemoryMode,
    /// How many instances it has.
    #[serde(default)]
    pub instances: Instances,
    /// Slots of its endpoint, a power of two; none if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<u32>,
    /// The peers that it may send to, as `ADDRESS:PORT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channel: Vec<String>,
    /// The local port that it sends from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_port: Option<u16>,
    /// Values of its parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Scalar<i64>>,
    /// The domain that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The service that its module lives on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
    /// The service that lives on its module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<String>,
    /// The process that it belongs to; the node if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// Puts another version in a handler's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// The handler.
    pub handler: String,
    /// The Wasm file, by an absolute path.
    pub file: String,
    /// Values of its parameters; the others keep theirs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Scalar<i64>>,
}

/// Puts the version before in a handler's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The handler.
    pub handler: String,
}

/// Unloads a handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Unload {
    /// The handler.
    pub handler: String,
}

/// Leads messages to a handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// The handler.
    pub handler: String,
    /// The path's name; the handler's if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The interfaces where the messages arrive.
    pub iface: Vec<String>,
    /// Which messages, in the words of pcap-filter.
    #[serde(rename = "match")]
    pub filter: String,
    /// The function of the handler; `on_rx` if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Where the handler may run.
    #[serde(default)]
    pub tier: Tier,
    /// What becomes of a message whose handler was stopped.
    #[serde(default)]
    pub on_fault: OnFault,
    /// How often the handler may be stopped, such as `100/1 s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<String>,
    /// Time for one message, such as `50 us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// Most of one CPU's time, such as `20 %`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// Most runs a second, such as `5000/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Which of its messages keep their order where some go to the user tier and others do not.
    #[serde(default)]
    pub order: OrderRule,
    /// The domain that the path belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The process that it belongs to; the node if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// Leads messages back to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Unbind {
    /// The path.
    pub path: String,
}

/// Moves a path to the kernel tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// The path.
    pub path: String,
    /// How many messages are compared first; 0 compares none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<u64>,
}

/// Moves a path to the user tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Demote {
    /// The path.
    pub path: String,
}

/// Ends a path's bypass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Enable {
    /// The path.
    pub path: String,
}

/// Creates paths from modules: all of them, or none.
///
/// One path may stand in the request itself, in place of `paths`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "CreateKeys")]
pub struct Create {
    /// The paths.
    pub paths: Vec<NewPath>,
    /// Whether each step of their creation is told.
    pub log: bool,
}

/// The keys of [`Create`].
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct CreateKeys {
    paths: Option<Vec<NewPath>>,
    module: Option<String>,
    name: Option<String>,
    attrs: Option<BTreeMap<String, Scalar<u64>>>,
    #[serde(rename = "match")]
    filter: Option<String>,
    tier: Option<Tier>,
    owner: Option<Owner>,
    #[serde(default)]
    log: bool,
}

impl TryFrom<CreateKeys> for Create {
    type Error = &'static str;

    fn try_from(keys: CreateKeys) -> Result<Self, &'static str> {
        let CreateKeys {
            paths,
            module,
            name,
            attrs,
            filter,
            tier,
            owner,
            log,
        } = keys;
        let paths = match (paths, module) {
            (None, None) => return Err("the request needs `module`"),
            (None, Some(module)) => vec![NewPath {
                module,
                name,
                attrs: attrs.unwrap_or_default(),
                filter,
                tier: tier.unwrap_or_default(),
                owner,
            }],
            (Some(paths), None)
                if name.is_none()
                    && attrs.is_none()
                    && filter.is_none()
                    && tier.is_none()
                    && owner.is_none() =>
            {
                paths
            }
            (Some(_), _) => {
                return Err("with `paths`, the keys of a path stand in that list alone");
            }
        };
        Ok(Self { paths, log })
    }
}

/// A path to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPath {
    /// The module that it is created from.
    pub module: String,
    /// Its name; the node makes one up if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attrs: BTreeMap<String, Scalar<u64>>,
    /// What must be true of its messages besides.
    #[serde(rename = "match")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Where it may run.
    #[serde(default)]
    pub tier: Tier,
    /// The process that it belongs to; the node if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// A path from a module and attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// The path.
    pub path: String,
}

/// Removes paths.
///
/// One may stand under `path`, in place of `paths`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "RemoveKeys")]
pub struct Remove {
    /// The paths.
    pub paths: Vec<String>,
}

/// The keys of [`Remove`].
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RemoveKeys {
    path: Option<String>,
    paths: Option<Vec<String>>,
}

impl TryFrom<RemoveKeys> for Remove {
    type Error = &'static str;

    fn try_from(RemoveKeys { path, paths }: RemoveKeys) -> Result<Self, &'static str> {
        match (path, paths) {
            (Some(path), None) => Ok(Self { paths: vec![path] }),
            (None, Some(paths)) => Ok(Self { paths }),
            (None, None) => Err("the request needs `path`"),
            (Some(_), Some(_)) => Err("the request has `path` and `paths`: give one of them"),
        }
    }
}

/// The messages that stopped handlers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// The handler; all if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
}

/// A message that stopped a handler, to be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Its number.
    pub fault: u64,
}

/// The lines of a handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The handler.
    pub handler: String,
    /// The number of the last line that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
}

/// A handler's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The handler.
    pub handler: String,
}

/// A handler's endpoint, which is then the caller's until it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The handler.
    pub handler: String,
}

/// A socket that tells what becomes of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Observe {
    /// An interface, or else a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// The interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface: Option<String>,
    /// The path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Which messages, in the words of pcap-filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Whether with bytes.
    #[serde(default)]
    pub frames: bool,
    /// After how many messages it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

#[cfg(test)]
mod tests;
