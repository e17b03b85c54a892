//! The parameters of a module, as it reads them.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::must_be;
use crate::attrs::Value;
use crate::problem::Problem;

/// The parameters of one module. Mistakes are noted, so that all of them are
/// shown; [`done`](Self::done) hands them over.
///
/// # Examples
///
/// ```
/// # use ashway_path::{problem::Problem, read::Params};
/// # use std::net::SocketAddr;
/// fn read(params: &mut Params<'_>) -> Result<(SocketAddr, u64), Vec<Problem>> {
///     let next_hop = params.required("next_hop");
///     let ttl = params.optional("ttl").unwrap_or(64);
///     if !(1..=255).contains(&ttl) {
///         params.refuse("ttl", "`ttl` is from 1 to 255 hops", "leave it out for 64");
///     }
///     let next_hop = params.done(next_hop)?;
///     Ok((next_hop, ttl))
/// }
/// ```
pub struct Params<'v> {
    /// How messages call the section.
    pub(super) title: String,
    /// Its name in the text.
    pub(super) span: Range<usize>,
    pub(super) values: Vec<(&'v str, &'v Spanned<DeValue<'v>>)>,
    pub(super) problems: Vec<Problem>,
}

impl<'v> Params<'v> {
    /// What the text says of them, whatever their places and their order are: equal if
    /// they are.
    pub(super) fn said(&self) -> String {
        let mut values: Vec<_> = self.values.iter().collect();
        values.sort_by_key(|(name, _)| *name);
        let mut said = String::new();
        for (name, value) in values {
            say(name, value.get_ref(), &mut said);
        }
        said
    }

    /// A parameter, or `None` if it is not there or wrong, which is then noted.
    pub fn optional<T: Parameter>(&mut self, name: &str) -> Option<T> {
        let value = self.value(name)?;
        self.read(name, value)
    }

    /// A parameter that must be there; `None` has been noted.
    pub fn required<T: Parameter>(&mut self, name: &str) -> Option<T> {
        if self.value(name).is_none() {
            self.problems.push(Problem::at(
                "missing_key",
                Some(self.span.clone()),
                format!("`{}` needs the key `{name}`", self.title),
                format!("add `{name}`: {}", T::WANTED),
            ));
        }
        self.optional(name)
    }

    /// The items of an array, or the one value that stands for it; those that
    /// are wrong are noted and left out.
    pub fn list<T: Parameter>(&mut self, name: &str) -> Vec<T> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        match value.get_ref().as_array() {
            Some(array) => array
                .iter()
                .filter_map(|item| self.read(name, item))
                .collect(),
            None => self.read(name, value).into_iter().collect(),
        }
    }

    /// Notes that a parameter has the right type but not a possible value.
    pub fn refuse(&mut self, name: &str, message: &str, hint: &str) {
        let span = self
            .value(name)
            .map_or_else(|| self.span.clone(), Spanned::span);
        let problem = Problem::at("bad_value", Some(span), message.to_owned(), hint.to_owned());
        self.problems.push(problem);
    }

    /// What was read, if nothing was noted.
    ///
    /// # Errors
    ///
    /// What was noted.
    ///
    /// # Panics
    ///
    /// If `read` is `None` though nothing was noted.
    pub fn done<T>(&mut self, read: Option<T>) -> Result<T, Vec<Problem>> {
        if self.problems.is_empty() {
            Ok(read.expect("what is missing was noted"))
        } else {
            Err(std::mem::take(&mut self.problems))
        }
    }

    fn value(&self, name: &str) -> Option<&'v Spanned<DeValue<'v>>> {
        let found = self.values.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| *value)
    }

    fn read<T: Parameter>(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<T> {
        let read = T::from_toml(value.get_ref());
        if read.is_none() {
            let message = must_be(&format!("`{name}`"), T::WANTED, value.get_ref());
            let problem = Problem::at("wrong_type", Some(value.span()), message, None);
            self.problems.push(problem);
        }
        read
    }
}

/// A type that parameters may have.
pub trait Parameter: Sized {
    /// What to write, with article: `an address, such as "10.0.0.1"`.
    const WANTED: &'static str;

    /// The value, if it is one.
    fn from_toml(value: &DeValue<'_>) -> Option<Self>;
}

impl Parameter for u64 {
    const WANTED: &'static str = "a whole number from 0";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        let integer = value.as_integer()?;
        Self::from_str_radix(integer.as_str(), integer.radix()).ok()
    }
}

impl Parameter for bool {
    const WANTED: &'static str = "`true` or `false`";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_bool()
    }
}

impl Parameter for String {
    const WANTED: &'static str = "a string";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl Parameter for IpAddr {
    const WANTED: &'static str = "an address, such as \"10.0.0.1\" or \"fd00::1\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

impl Parameter for SocketAddr {
    const WANTED: &'static str = "an address and port, such as \"10.0.0.1:53\" or \"[fd00::1]:53\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

/// Numbers, truths (0 or 1), and texts by [`Value::of_text`].
impl Parameter for Value {
    const WANTED: &'static str = "a number, a truth or a string";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        match value {
            DeValue::String(text) => Some(Self::of_text(text)),
            DeValue::Boolean(truth) => Some(Self::Number(u64::from(*truth))),
            other => u64::from_toml(other).map(Self::Number),
        }
    }
}

/// Writes a value so that no other value is written so.
fn say(name: &str, value: &DeValue<'_>, said: &mut String) {
    use std::fmt::Write;
    let _ = match value {
        DeValue::String(text) => write!(said, "{name:?}={text:?};"),
        DeValue::Integer(number) => {
            write!(said, "{name:?}={}r{};", number.as_str(), number.radix())
        }
        DeValue::Float(number) => write!(said, "{name:?}={}f;", number.as_str()),
        DeValue::Boolean(truth) => write!(said, "{name:?}={truth};"),
        DeValue::Datetime(time) => write!(said, "{name:?}={time};"),
        DeValue::Array(items) => {
            let _ = write!(said, "{name:?}=[");
            for item in items {
                say("", item.get_ref(), said);
            }
            write!(said, "];")
        }
        DeValue::Table(table) => {
            let _ = write!(said, "{name:?}={{");
            let mut keys: Vec<_> = table.iter().collect();
            keys.sort_by_key(|(key, _)| key.get_ref().as_ref());
            for (key, value) in keys {
                say(key.get_ref(), value.get_ref(), said);
            }
            write!(said, "}};")
        }
    };
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use toml::de::DeTable;

    use super::*;

    /// What a module makes of the parameters in `text`.
    fn with<T>(text: &str, read: impl FnOnce(&mut Params<'_>) -> T) -> T {
        let table = DeTable::parse(text).unwrap().into_inner();
        let values = table
            .iter()
            .map(|(key, value)| (key.get_ref().as_ref(), value));
        read(&mut Params {
            title: "module.m".to_owned(),
            span: 0..1,
            values: values.collect(),
            problems: Vec::new(),
        })
    }

    #[test]
    fn parameters_have_types() {
        let text = "n = 0x1f\nyes = true\nword = 'w'\nhost = 'fd00::1'\nend = '10.0.0.1:53'\n\
            any = '10.0.0.1'\nlist = [1, 2]";
        with(text, |params| {
            assert_eq!(params.optional("n"), Some(31_u64));
            assert_eq!(params.optional("yes"), Some(true));
            assert_eq!(params.optional("word"), Some("w".to_owned()));
            assert_eq!(params.required("host"), "fd00::1".parse::<IpAddr>().ok());
            assert_eq!(
                params.optional("end"),
                "10.0.0.1:53".parse::<SocketAddr>().ok()
            );
            let any = "10.0.0.1".parse().map(Value::Address).ok();
            assert_eq!(params.optional("any"), any);
            assert_eq!(params.optional("yes"), Some(Value::Number(1)));
            assert_eq!(params.list::<u64>("list"), [1, 2]);
            assert_eq!(params.list::<u64>("n"), [31]);
            assert_eq!(params.optional::<u64>("missing"), None);
            params.done(Some(())).unwrap();
        });
    }

    #[test]
    fn what_is_wrong_with_parameters_is_said_with_an_example() {
        let text = "n = -1\nend = '10.0.0.1'\nhost = 4";
        let problems = with(text, |params| {
            params.optional::<u64>("n");
            params.optional::<SocketAddr>("end");
            params.required::<IpAddr>("host");
            params.required::<IpAddr>("gateway");
            params.refuse("n", "`n` is too small", "more");
            params.done::<()>(None).unwrap_err()
        });
        let said: Vec<_> = problems
            .iter()
            .map(|it| (it.message.as_str(), it.span.clone()))
            .collect();
        assert_eq!(
            said,
            [
                ("`n` must be a whole number from 0, not `-1`", Some(4..6)),
                (
                    "`end` must be an address and port, such as \"10.0.0.1:53\" or \"[fd00::1]:53\", \
                     not `10.0.0.1`",
                    Some(13..23)
                ),
                (
                    "`host` must be an address, such as \"10.0.0.1\" or \"fd00::1\", not `4`",
                    Some(31..32)
                ),
                ("`module.m` needs the key `gateway`", Some(0..1)),
                ("`n` is too small", Some(4..6)),
            ]
        );
        assert_eq!(
            problems[3].hint.as_deref(),
            Some("add `gateway`: an address, such as \"10.0.0.1\" or \"fd00::1\"")
        );
    }
}
