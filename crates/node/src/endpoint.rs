//! Who reads the endpoints of the node's handlers.

use super::Node;
use crate::control::{Answer, Caller};
use crate::request::Refusal;
use ashway_api::answer::EndpointPlace;
use ashway_worker::endpoint::OpenError;

impl Node {
    /// Gives a handler's endpoint to the process that asks: where its ring lies in
    /// the memory, and the descriptor to sleep on.
    pub(super) fn open_endpoint(&self, handler: &str, caller: &Caller) -> Answer {
        match self.endpoint_for(handler, caller) {
            Ok(answer) => answer,
            Err(refusal) => refusal.into(),
        }
    }

    fn endpoint_for(&self, name: &str, caller: &Caller) -> Result<Answer, Refusal> {
        let (_, handler) = self.find_handler(name)?;
        let (endpoint, place) = handler.shared.endpoint().ok_or_else(|| {
            Refusal::failed(
                format!("handler `{name}` has no endpoint"),
                format!(
                    "write `endpoint = 256` into `[handler.{name}]`, or `handler load --endpoint 256`"
                ),
            )
        })?;
        let refused = |message, hint| {
            let message = format!("the endpoint of `{name}` cannot be handed out: {message}");
            Refusal::failed(message, hint)
        };
        let peer = caller.peer().map_err(|error| {
            let hint = "ask from a process of the node's own PID namespace";
            refused(format!("who asks? {error}"), hint)
        })?;
        self.deaths.watch(&peer);
        let event = endpoint.open(place, peer).map_err(|error| match error {
            OpenError::Held(by) => Refusal::failed(
                format!("process {by} reads the endpoint of `{name}`"),
                "one process reads an endpoint: end that one, or load the handler under another \
                 name",
            ),
            OpenError::Socket(error) => refused(
                format!("no socket pair: {error}"),
                "the node may have too few descriptors: `ulimit -n`",
            ),
        })?;
        let layout = place.layout;
        let place = EndpointPlace {
            slots: layout.endpoint_slots as u64,
            slot_bytes: layout.endpoint_slot_bytes as u64,
            payloads_at: layout.endpoint_payload(0) as u64,
            control_at: layout.endpoint_control() as u64,
        };
        Ok(Answer::WithFd(place.into(), event))
    }

    /// Closes the endpoints whose readers have died. A system call for each that has
    /// one.
    pub(super) fn look_who_reads(&self) {
        for instance in self.instances() {
            if let Some((endpoint, place)) = instance.endpoint() {
                endpoint.release_if_gone(place);
            }
        }
    }
}
