//! The attributes that people may give a path, and what each must be.
//!
//! A module that finds no attribute of the type it reads goes on without it, and a
//! path with fewer attributes takes more messages: a wrong port in `local` would
//! make a relay take all UDP. So what people write is checked where it comes in.
//! What modules set for each other (`reassemble`, `promote_forward`) does not pass
//! here and is not in the table.

use ashway_path::attrs::{Attrs, Value, names};
use ashway_path::problem::suggest;

use crate::{eth, fault, forward, fragment, handler, ip, pipe, source};

/// What an attribute's value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A number from 0.
    Number,
    /// A number from one to another.
    Within(u64, u64),
    /// An address, with or without a port.
    End,
    /// An address and a port.
    Endpoint,
    /// A hardware address.
    Mac,
    /// A name: of a module, of a function.
    Name,
    /// Names of modules, separated by `/`.
    Pathname,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// An attribute's name, and what its value must be.
pub type AttributeSpec = (&'static str, Form);

/// What the modules of this crate read; those of [`fault`] are its parameters.
pub const KNOWN: &[AttributeSpec] = &[
    (names::LOCAL, Form::End),
    (names::REMOTE, Form::End),
    (names::PATHNAME, Form::Pathname),
    (names::PROTOCOL, Form::Number),
    (names::MTU, Form::Number),
    (forward::NEXT_HOP, Form::Endpoint),
    (forward::FROM, Form::Endpoint),
    (forward::OUT, Form::Name),
    (forward::NEXT_HOP_MAC, Form::Mac),
    (forward::NEXT_HOP_VLAN, Form::Number),
    (ip::HOPS, Form::Number),
    (ip::LINK_MODULE, Form::Name),
    (eth::NEXT_MAC, Form::Mac),
    (eth::VLAN, Form::Number),
    (handler::FUNCTION, Form::Name),
    (fragment::LONGEST, Form::Number),
    (fragment::REASSEMBLY_BYTES, Form::Number),
    (fragment::REASSEMBLY_DATAGRAMS, Form::Number),
    (pipe::FUSE, Form::Word(&["on", "off"])),
    (source::RATE, Form::Number),
    (source::COUNT, Form::Number),
    (source::LEN, Form::Number),
];

/// All attributes that people may give, with `own` among them.
pub fn known(own: &[AttributeSpec]) -> impl Iterator<Item = AttributeSpec> {
    let faults = fault::KIND.params.iter();
    let faults = faults.map(|param| (param.name, Form::Number));
    KNOWN.iter().chain(own).copied().chain(faults)
}

/// Why an attribute is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Whether it is the name that is wrong; else it is the value.
    pub name: bool,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

/// An attribute that somebody gives: its name as modules have it, and its value as they
/// read it. `own` are those that the caller reads itself.
///
/// # Errors
///
/// Nobody reads an attribute of this name, or not with such a value.
pub fn check(
    own: &[AttributeSpec],
    name: &str,
    value: Value,
) -> Result<(&'static str, Value), Wrong> {
    let Some((name, form)) = known(own).find(|(known, _)| *known == name) else {
        let known: Vec<&str> = known(own).map(|(known, _)| known).collect();
        return Err(Wrong {
            name: true,
            message: format!("no module reads an attribute `{name}`"),
            hint: suggest(name, &known),
        });
    };
    let read = form.read(value).map_err(|value| Wrong {
        name: false,
        message: format!("attribute `{name}` cannot be `{value}`"),
        hint: format!("give {}", form.wanted()),
    });
    read.map(|value| (name, value))
}

/// An attribute among those that a path was given which nothing on it reads, with the
/// reason and what to write instead: it would do nothing, and who gave it believes that
/// it does. `has_stage` says of a kind whether a stage of the path is of it.
///
/// It asks for attributes of the kinds whose stages no rule merges with others. The rest
/// (`longest`, `fuse`) are read by modules and rules that are gone when a path is done.
#[must_use]
pub fn unread(
    attrs: &Attrs,
    has_stage: impl Fn(&str) -> bool,
) -> Option<(&'static str, [String; 2])> {
    let of_fault = fault::KIND.params.iter().map(|param| param.name);
    let of_source = [source::RATE, source::COUNT, source::LEN];
    let by = |kind: &'static str| move |name| (kind, name);
    let mut of = of_source
        .map(by(source::KIND.name))
        .into_iter()
        .chain([(handler::KIND.name, handler::FUNCTION)])
        .chain(of_fault.map(by(fault::KIND.name)));
    let (kind, name) = of.find(|(kind, name)| attrs.value(name).is_some() && !has_stage(kind))?;
    let because = format!(
        "no stage of it reads the attribute `{name}`, which is for a module of kind `{kind}`"
    );
    let hint = match name {
        source::RATE => "how many messages a second the path may take is `rate_per_second`".into(),
        _ => format!("leave it out, or lead the path through a module of kind `{kind}`"),
    };
    Some((name, [because, hint]))
}

impl Form {
    /// The value in this form; the value as it was, if it cannot have it.
    fn read(self, value: Value) -> Result<Value, Value> {
        // A name may look like a number: `Value::of_text` cannot know.
        let value = match (self, value) {
            (Self::Name | Self::Pathname | Self::Word(_), value @ Value::Text(_)) => value,
            (Self::Name | Self::Pathname | Self::Word(_), value) => {
                Value::Text(value.to_string().into())
            }
            (_, value) => value,
        };
        let fits = match (self, &value) {
            (Self::Number, Value::Number(_))
            | (Self::End, Value::Address(_) | Value::Endpoint(_))
            | (Self::Endpoint, Value::Endpoint(_)) => true,
            (Self::Within(least, most), Value::Number(number)) => (least..=most).contains(number),
            (Self::Mac, Value::Text(mac)) => eth::parse_mac(mac).is_ok(),
            (Self::Name, Value::Text(text)) => !text.is_empty() && !text.contains('/'),
            (Self::Pathname, Value::Text(text)) => !text.is_empty(),
            (Self::Word(words), Value::Text(text)) => words.contains(&&**text),
            _ => false,
        };
        if fits { Ok(value) } else { Err(value) }
    }

    /// What to give, with article.
    fn wanted(self) -> String {
        match self {
            Self::Number => "a whole number from 0".to_owned(),
            Self::Within(least, most) => format!("a whole number from {least} to {most}"),
            Self::End => "an address and a port (10.0.1.1:9000), or an address".to_owned(),
            Self::Endpoint => "an address and a port (10.0.1.1:9000)".to_owned(),
            Self::Mac => "six bytes in hexadecimal (02:00:00:00:00:01)".to_owned(),
            Self::Name => "a name".to_owned(),
            Self::Pathname => "names of modules, separated by `/` (udp/relay)".to_owned(),
            Self::Word(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                words.join(" or ")
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const OWN: &[AttributeSpec] = &[
        ("on_fault", Form::Word(&["pass", "drop"])),
        ("budget_ns", Form::Within(1000, 2000)),
    ];

    #[test]
    fn what_modules_would_not_read_is_refused() {
        for (name, value, by_name, says) in [
            ("local", "10.0.1.1:99999", false, "an address and a port"),
            ("local", "5", false, "an address and a port"),
            ("local", "", false, "an address and a port"),
            ("locl", "10.0.1.1:9000", true, "did you mean `local`?"),
            ("next_hop", "10.0.1.1", false, "10.0.1.1:9000"),
            ("mtu", "hello", false, "number"),
            ("memory", "-1", true, "available"),
            ("next_mac", "02:00", false, "six bytes"),
            ("pathname", "", false, "names of modules"),
            ("link", "a/b", false, "a name"),
            ("loss_ppm", "x", false, "number"),
            ("on_fault", "cry", false, "`pass` or `drop`"),
            ("reassemble", "1", true, "available"),
            ("budget_ns", "999", false, "from 1000 to 2000"),
            ("budget_ns", "2001", false, "from 1000 to 2000"),
            ("budget_ns", "a", false, "from 1000 to 2000"),
        ] {
            let wrong = check(OWN, name, Value::of_text(value)).unwrap_err();
            assert_eq!(wrong.name, by_name, "{wrong:?}");
            assert!(wrong.hint.contains(says), "{wrong:?}");
            assert!(wrong.message.contains(&format!("`{name}`")), "{wrong:?}");
        }
    }

    #[test]
    fn what_no_stage_of_a_path_reads_is_named() {
        let mut attrs = Attrs::new();
        attrs.set("local", 1);
        assert_eq!(unread(&attrs, |kind| kind == "datagram"), None);
        for (name, kind) in [
            ("rate", "source"),
            ("len", "source"),
            ("function", "handler"),
            ("seed", "fault"),
        ] {
            let mut attrs = attrs.clone();
            attrs.set(name, 5);
            let (found, [because, _]) = unread(&attrs, |kind| kind == "datagram").unwrap();
            assert_eq!(found, name);
            assert!(because.contains(&format!("of kind `{kind}`")), "{because}");
            assert_eq!(unread(&attrs, |known| known == kind), None);
        }
    }

    #[test]
    fn what_modules_read_comes_as_they_read_it() {
        for (name, value) in [
            ("local", "10.0.1.1:9000"),
            ("remote", "fd00::1"),
            ("vlan", "5"),
            ("next_hop_mac", "02:00:00:00:00:01"),
            ("on_fault", "drop"),
            ("loss_ppm", "7"),
            ("budget_ns", "1000"),
            ("budget_ns", "2000"),
        ] {
            let value = Value::of_text(value);
            assert_eq!(check(OWN, name, value.clone()).unwrap(), (name, value));
        }
        // A module may be called `5`.
        let five = check(OWN, "link", Value::Number(5)).unwrap();
        assert_eq!(five, ("link", "5".into()));
    }
}
