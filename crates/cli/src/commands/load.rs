//! `ashway handler load`: a handler for a running node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ashway_api::{Owner, Scalar, request};
use ashway_handler::Param;
use clap::Args;

use super::{Node, one_of, word};
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};

/// Give a running node a handler, and print its id
///
/// The node compiles the file and makes the handler's memory. No message
/// reaches it, and nothing of it runs on one, before `ashway bind`. The id is
/// its name, for `bind`, `handler ls` and `handler map`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler load counter.wasm --allow reply
  ashway handler load counter.wasm --name tens --allow reply --param step=10
  ashway handler load relay.wasm --allow reply,send --channel 10.0.1.2:9000
  ashway bind \"$(ashway handler load echo.wasm --allow reply)\" \\
      --match 'udp and dst port 7777' --iface veth0")]
pub(crate) struct Load {
    /// The Wasm file
    file: PathBuf,
    /// Its id [default: the file's name without .wasm]
    #[arg(long)]
    name: Option<String>,
    /// What it may do beyond looking at messages: reply, time, send, timer, pipe, log;
    /// several with commas between, or by several --allow
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    allow: Vec<String>,
    /// What its memory is made of: auto, arena or array [default: auto]
    #[arg(long, value_name = "KIND")]
    memory: Option<String>,
    /// How many instances it has: one; per-cpu, with a memory for each CPU that runs what
    /// arrives there; or parallel, one that runs on all CPUs at once and was built for that
    /// [default: one]
    #[arg(long, value_name = "HOW")]
    instances: Option<String>,
    /// Slots of its endpoint, a power of two [default: no endpoint]
    #[arg(long, value_name = "SLOTS")]
    endpoint: Option<u32>,
    /// A peer that it may send to, as ADDRESS:PORT; give one for each channel, in
    /// their order
    #[arg(long, value_name = "PEER")]
    channel: Vec<String>,
    /// The local port that it sends from [default: any]
    #[arg(long, value_name = "PORT")]
    send_port: Option<u16>,
    /// The domain it belongs to: paths to it take what the domain owns, no more
    #[arg(long)]
    domain: Option<String>,
    /// The service that its module lives on, for paths of modules: `handler:NAME` is a
    /// stage of those that are created through it [default: udp.up]
    #[arg(long, value_name = "MODULE.SERVICE")]
    down: Option<String>,
    /// The service that lives on it, so that `forward` leads there
    #[arg(long, value_name = "MODULE.SERVICE", requires = "down")]
    up: Option<String>,
    /// The process it belongs to: it goes when that has ended, however that
    /// ends, and the paths to it with it
    /// [default: the node]
    #[arg(long, value_name = "PID")]
    owner: Option<u32>,
    /// A value for one of its `ASHWAY_PARAM`s (a number) or `ASHWAY_TEXT_PARAM`s; a
    /// text that looks like a number in quotation marks
    #[arg(long, value_name = "NAME=VALUE", value_parser = param)]
    param: Vec<(String, Param)>,
    #[command(flatten)]
    node: Node,
}

impl Load {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let file = absolute(&self.file)?;
        let params = params(self.param)?;
        let allow = self.allow.iter().map(|grant| one_of("allow", grant));
        let allow = allow.collect::<Result<_, _>>()?;
        let said = self.node.connect()?.request(request::Load {
            file,
            name: self.name,
            allow,
            memory: word("memory", self.memory.as_deref())?,
            instances: word("instances", self.instances.as_deref())?,
            endpoint: self.endpoint,
            channel: self.channel,
            send_port: self.send_port,
            params,
            domain: self.domain,
            down: self.down,
            up: self.up,
            owner: self.owner.map(Owner::Process),
        })?;
        face.show(&said.document, || clean(&said.answer.handler))?;
        Ok(())
    }
}

/// Parameters as a request has them.
pub(super) fn params(
    given: Vec<(String, Param)>,
) -> Result<BTreeMap<String, Scalar<i64>>, Failure> {
    let mut params = BTreeMap::new();
    for (name, value) in given {
        if params.contains_key(&name) {
            let error = format!("parameter `{name}` is given twice");
            return Err(Failure::new(Exit::Usage, error).hint("give each once"));
        }
        let value = match value {
            Param::Number(number) => Scalar::Number(number),
            Param::Text(text) => Scalar::Text(text),
        };
        params.insert(name, value);
    }
    Ok(params)
}

/// A file's name as the node has to know it, which may have been started in another
/// folder.
pub(super) fn absolute(file: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(file).map_err(|error| {
        Failure::new(Exit::Usage, format!("cannot find `{}`", file.display()))
            .because(&error)
            .in_file(file)
    })?;
    absolute.into_os_string().into_string().map_err(|name| {
        let name = name.display();
        Failure::new(Exit::Usage, format!("the path `{name}` is not UTF-8"))
    })
}

/// A number, or else a text; a text that looks like a number stands in quotation marks.
pub(super) fn param(text: &str) -> Result<(String, Param), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && value.parse::<i64>().is_err() {
        return Err(format!(
            "a number of 64 bits is from {} to {}; a text of digits stands in quotation marks",
            i64::MIN,
            i64::MAX
        ));
    }
    let quoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    let value = match (quoted, value.parse()) {
        (Some(text), _) => Param::Text(text.to_owned()),
        (None, Ok(number)) => Param::Number(number),
        (None, Err(_)) => Param::Text(value.to_owned()),
    };
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_a_name_and_a_number_or_a_text() {
        let text = |text: &str| Param::Text(text.to_owned());
        for (given, value) in [
            ("step=-5", Param::Number(-5)),
            ("step=five", text("five")),
            ("step=\"5\"", text("5")),
            ("step=a=b", text("a=b")),
            ("step=", text("")),
            ("step=-", text("-")),
            ("step=9223372036854775807", Param::Number(i64::MAX)),
            ("step=\"9223372036854775808\"", text("9223372036854775808")),
        ] {
            assert_eq!(param(given), Ok(("step".to_owned(), value)), "{given}");
        }
        assert!(param("step").is_err());
        for wide in ["9223372036854775808", "-9223372036854775809"] {
            let said = param(&format!("step={wide}")).unwrap_err();
            assert!(said.contains("to 9223372036854775807;"), "{said}");
        }
    }
}
