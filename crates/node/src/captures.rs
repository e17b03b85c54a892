//! Captures in the place of interfaces: when they begin, and what is said at their ends.

use std::fmt::Write as _;

use ashway_abi::Count;
use ashway_worker::worker::command::Command;

use super::own::NodeCapture;
use super::{Node, RunError, say};

impl NodeCapture {
    /// Whether nothing of it is to come.
    fn has_ended(&self) -> bool {
        self.read.is_none() || self.progress.end().is_some()
    }
}

impl Node {
    fn captures(&self) -> impl Iterator<Item = &NodeCapture> {
        let ifaces = self.ifaces.values();
        ifaces.filter_map(|iface| iface.outside.capture.as_ref())
    }

    /// Lets captures begin: whoever waits for the node's first line sees all of them.
    pub(super) fn begin_captures(&mut self) {
        let mut any = false;
        for capture in self.captures() {
            capture.progress.begin();
            any = true;
        }
        if any {
            // Wakes the worker. One that does not answer works for nobody any more.
            let _ = self.call_worker(Command::Finish);
        }
    }

    /// Says which captures have come to their ends, once.
    pub(super) fn look_at_captures(&mut self) {
        for iface in self.ifaces.values_mut() {
            let Some(capture) = &mut iface.outside.capture else {
                continue;
            };
            let name = &iface.name;
            if let (Some(because), Some(file)) = (capture.progress.unwritten(), &capture.write)
                && !std::mem::replace(&mut capture.is_loss_said, true)
            {
                let file = file.display();
                say(&format!(
                    "{name}: nothing more is written into `{file}`: {because}"
                ));
            }
            let (Some(end), Some(file)) = (capture.progress.end(), &capture.read) else {
                continue;
            };
            if std::mem::replace(&mut capture.is_end_said, true) {
                continue;
            }
            let (file, read) = (file.display(), capture.progress.read());
            let mut line = match end {
                Ok(()) => format!("{name}: `{file}` is at its end: {read} frames"),
                Err(broken) => format!(
                    "{name}: `{file}` is broken behind its frame {}: {broken}",
                    read + capture.progress.cut()
                ),
            };
            match capture.progress.cut() {
                0 => {}
                cut => {
                    let _ = write!(line, "; {cut} more are cut in it and did not come");
                }
            }
            if let Some(written) = &capture.write {
                let (file, frames) = (written.display(), capture.progress.written());
                let _ = write!(line, "; `{file}` has {frames}");
            }
            say(&line);
        }
    }

    /// Whether all captures are at their ends; then what has become of all messages is said.
    ///
    /// # Errors
    ///
    /// If one was broken, or could not be written.
    pub(super) fn have_captures_ended(&mut self) -> Result<bool, RunError> {
        if !self.captures().all(NodeCapture::has_ended) {
            return Ok(false);
        }
        self.look_at_captures();
        let mut sum = self.rows_of_relays();
        let mut rows: Vec<_> = self
            .plan
            .ifaces
            .values()
            .map(|it| it.unmatched_row)
            .collect();
        rows.extend(self.plan.paths.values().map(|it| it.row));
        rows.push(self.plan.module_row);
        for row in rows {
            sum.add(&self.row(row));
        }
        let fates = Count::ALL
            .iter()
            .filter(|count| ashway_path::account::is_fate(**count));
        let fates = fates.filter(|fate| sum.get(**fate) > 0);
        let fates: Vec<_> = fates
            .map(|fate| format!("{} {}", sum.get(*fate), fate.name()))
            .collect();
        say(&format!(
            "received {}: {}",
            sum.get(Count::Received),
            if fates.is_empty() {
                "nothing".to_owned()
            } else {
                fates.join(", ")
            }
        ));
        let broken = self.captures().find_map(|capture| {
            let because = capture.progress.end()?.as_ref().err()?;
            Some((capture.read.clone()?, because.clone()))
        });
        let unwritten = self.captures().find_map(|capture| {
            let because = capture.progress.unwritten()?;
            Some((capture.write.clone()?, because.to_owned()))
        });
        match broken.or(unwritten) {
            Some((file, because)) => Err(RunError::CaptureLost { file, because }),
            None => Ok(true),
        }
    }
}
