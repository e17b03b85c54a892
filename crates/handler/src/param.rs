//! Parameters: values that whoever loads a handler gives to its variables.
//!
//! A number is a 64-bit variable, exported as `ashway_param_NAME`. A text is a structure,
//! exported as `ashway_text_NAME`: its room in bytes (`u32`, the handler's), its length
//! (`u32`), and the bytes.

/// Exports of numbers begin with this.
pub const NUMBER_PREFIX: &str = "ashway_param_";

/// Exports of texts.
pub const TEXT_PREFIX: &str = "ashway_text_";

/// Longest text, in bytes, whatever room a handler has.
pub const MOST_TEXT_BYTES: usize = 4096;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// Of a number.
    Number(i64),
    /// Of a text.
    Text(String),
}

/// Why a handler does not take a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// There is no such parameter.
    #[error("has no parameter `{param}`")]
    Unknown {
        /// Its name.
        param: String,
        /// Those there are.
        has: Vec<String>,
    },
    /// It is a text, and the value a number, or the other way round.
    #[error("takes a {takes} as parameter `{param}`, not a {given}")]
    Type {
        /// Its name.
        param: String,
        /// What it is.
        takes: &'static str,
        /// What was given.
        given: &'static str,
    },
    /// A text is longer than the handler has room for.
    #[error("has room for {room} bytes in parameter `{param}`, not for {len}")]
    TooLong {
        /// Its name.
        param: String,
        /// Bytes given.
        len: usize,
        /// Bytes there are.
        room: usize,
    },
}

impl ParamError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown { has, .. } if has.is_empty() => {
                "it has none; write `ASHWAY_PARAM(name, default)` in the handler".to_owned()
            }
            Self::Unknown { has, .. } => format!("it has `{}`", has.join("`, `")),
            Self::Type { takes: "text", .. } => {
                "write it in quotation marks; on the command line, too: `--param 'code=\"007\"'`"
                    .to_owned()
            }
            Self::Type { .. } => format!(
                "write a whole number from {} to {}, in decimal and without quotation marks",
                i64::MIN,
                i64::MAX
            ),
            Self::TooLong { .. } => {
                "shorten it, or give `ASHWAY_TEXT_PARAM` more room in the handler".to_owned()
            }
        }
    }
}

/// The parameters among a module's symbols.
pub fn names<'s>(symbols: &'s [(String, u32)]) -> impl Iterator<Item = &'s str> {
    let name = |(name, _): &'s (String, u32)| {
        let number = name.strip_prefix(NUMBER_PREFIX);
        number.or_else(|| name.strip_prefix(TEXT_PREFIX))
    };
    symbols.iter().filter_map(name)
}

/// Where in the handler's memory a value goes, and its bytes. `room` reads the word at
/// an address, as the handler has it at first.
///
/// # Errors
///
/// [`ParamError`]: why not.
pub fn place(
    symbols: &[(String, u32)],
    param: &str,
    value: &Param,
    room: impl FnOnce(u32) -> Option<u32>,
) -> Result<(u32, Vec<u8>), ParamError> {
    let find = |prefix: &str| {
        let mut known = symbols.iter();
        let found = known.find(|(name, _)| name.strip_prefix(prefix) == Some(param));
        found.map(|(_, address)| *address)
    };
    let other = |takes, given| {
        Err(ParamError::Type {
            param: param.to_owned(),
            takes,
            given,
        })
    };
    match (find(NUMBER_PREFIX), find(TEXT_PREFIX), value) {
        (Some(at), _, Param::Number(value)) => Ok((at, value.to_le_bytes().to_vec())),
        (_, Some(at), Param::Text(text)) => {
            let room = room(at).map_or(0, |room| (room as usize).min(MOST_TEXT_BYTES));
            if text.len() > room {
                return Err(ParamError::TooLong {
                    param: param.to_owned(),
                    len: text.len(),
                    room,
                });
            }
            let len = (text.len() as u32).to_le_bytes();
            Ok((at.wrapping_add(4), [&len, text.as_bytes()].concat()))
        }
        (Some(_), _, Param::Text(_)) => other("number", "text"),
        (_, Some(_), Param::Number(_)) => other("text", "number"),
        (None, None, _) => Err(ParamError::Unknown {
            param: param.to_owned(),
            has: names(symbols).map(str::to_owned).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_goes_where_it_fits() {
        let symbols = [
            ("ashway_param_step".to_owned(), 16),
            ("ashway_text_name".to_owned(), 64),
            ("other".to_owned(), 8),
        ];
        let place = |param, value| place(&symbols, param, &value, |_| Some(5));
        assert_eq!(
            place("step", Param::Number(-2)),
            Ok((16, (-2_i64).to_le_bytes().to_vec()))
        );
        let text = |text: &str| Param::Text(text.to_owned());
        assert_eq!(
            place("name", text("five!")),
            Ok((68, b"\x05\0\0\0five!".to_vec()))
        );
        assert_eq!(place("name", text("")), Ok((68, vec![0; 4])));
        let said = |result: Result<_, ParamError>| result.unwrap_err().to_string();
        assert_eq!(
            said(place("name", text("longer"))),
            "has room for 5 bytes in parameter `name`, not for 6"
        );
        assert_eq!(
            said(place("name", Param::Number(5))),
            "takes a text as parameter `name`, not a number"
        );
        assert_eq!(
            said(place("step", text("5"))),
            "takes a number as parameter `step`, not a text"
        );
        assert_eq!(said(place("other", text("5"))), "has no parameter `other`");
    }
}
