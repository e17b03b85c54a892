//! `ashway bind` and `ashway unbind`: paths of a running node come and go.

use ashway_api::{Owner, request};
use clap::Args;

use super::{Node, word};
use crate::face::{Face, clean};
use crate::failure::Failure;

/// Lead the messages of a filter to a handler of a running node
///
/// Makes a path: from the given interfaces, by the given match, to the handler.
/// Other paths notice nothing. The words mean what they mean in the sections
/// `[path.NAME]` of a configuration. The path lasts until `ashway unbind` or the
/// node's end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bind echo --match 'udp and dst port 7777' --iface veth0
  ashway bind counter:on_rx --match 'ip and udp dst port 7' --iface veth0 \\
      --iface veth1 --name inc --tier user --on-fault drop --budget '20 us'")]
pub(crate) struct Bind {
    /// The handler's id, and the function unless it is `on_rx`
    #[arg(value_name = "HANDLER[:FUNCTION]")]
    handler: String,
    /// Which messages, in the words of tcpdump
    #[arg(long = "match", visible_alias = "filter", value_name = "FILTER")]
    filter: String,
    /// Where they arrive; can be given several times
    #[arg(long, required = true)]
    iface: Vec<String>,
    /// The path's name [default: the handler's]
    #[arg(long)]
    name: Option<String>,
    /// Where the handler may run: auto, kernel or user [default: auto]
    ///
    /// With `kernel`, a handler that cannot run there is not bound (exit code
    /// 3); with `auto` it runs in the user tier and the reason is printed.
    #[arg(long)]
    tier: Option<String>,
    /// What becomes of a message whose handler was stopped: pass, drop or demote
    /// [default: pass]
    #[arg(long, value_name = "WHAT")]
    on_fault: Option<String>,
    /// How often the handler may be stopped before the path leaves the kernel tier: `off`
    /// or LIMIT/TIME; with LIMIT/TIME/REST, stopped as often again it is bypassed for so
    /// long [default: 100/1 s]
    #[arg(long, value_name = "LIMIT/TIME")]
    faults: Option<String>,
    /// Time for one message [default: 50 us]
    #[arg(long, value_name = "TIME")]
    budget: Option<String>,
    /// Most of one CPU's time that it has in the tier that it runs in, like '20 %'; what
    /// comes above that is led from the kernel tier to the user tier, or waits [default: all]
    #[arg(long, value_name = "PERCENT")]
    share: Option<String>,
    /// Most runs of its handler in the tier that it runs in, like 5000/s [default: any]
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Which of its messages keep their order where some go to the user tier and others do not:
    /// those of a flow, of the path, or none [default: flow]
    #[arg(long, value_name = "RULE")]
    order: Option<String>,
    /// The domain that the path belongs to: it gets no more than this owns
    #[arg(long)]
    domain: Option<String>,
    /// The process it belongs to: it goes when that has ended, however that ends
    /// [default: the node]
    #[arg(long, value_name = "PID")]
    owner: Option<u32>,
    #[command(flatten)]
    node: Node,
}

impl Bind {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let (handler, function) = match self.handler.split_once(':') {
            Some((handler, function)) => (handler.to_owned(), Some(function.to_owned())),
            None => (self.handler, None),
        };
        let said = self.node.connect()?.request(request::Bind {
            handler,
            path: self.name,
            iface: self.iface,
            filter: self.filter,
            function,
            tier: word("tier", self.tier.as_deref())?,
            on_fault: word("on_fault", self.on_fault.as_deref())?,
            faults: self.faults,
            budget: self.budget,
            share: self.share,
            rate: self.rate,
            order: word("order", self.order.as_deref())?,
            domain: self.domain,
            owner: self.owner.map(Owner::Process),
        })?;
        face.show(&said.document, || {
            let bound = &said.answer;
            let (path, tier) = (clean(&bound.path), clean(&bound.tier));
            let mut out = format!("path `{path}` runs in the {tier} tier");
            for (label, text) in [
                ("because", bound.why.because.as_deref()),
                ("at", bound.line.as_deref()),
                ("hint", bound.why.hint.as_deref()),
            ] {
                if let Some(text) = text {
                    out.extend(["\n  ", label, ": ", &clean(text)]);
                }
            }
            out
        })?;
        Ok(())
    }
}

/// Take a path away from a running node
///
/// Its messages are the host's again; the handler stays loaded. Messages that
/// have been received are still answered. The path's counters end with it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway unbind echo
  ashway path ls      names the paths")]
pub(crate) struct Unbind {
    /// The path
    path: String,
    #[command(flatten)]
    node: Node,
}

impl Unbind {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let path = self.path.clone();
        let said = self.node.connect()?.request(request::Unbind { path })?;
        face.show(&said.document, || {
            format!(
                "path `{}` is unbound; its messages are the host's",
                self.path
            )
        })?;
        Ok(())
    }
}
