//! A node that is not there: what a configuration means without one.

use std::net::SocketAddr;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, channel};

use ashway_modules::Message;
use ashway_modules::handler::{self, Act, Activate};
use ashway_modules::kinds::Interface;
use ashway_modules::mac::Mac;
use ashway_modules::shell::{Commands, Outcome, Request};
use ashway_modules::tap::{Seen, Target, Watch};
use ashway_path::attrs::Attrs;
use ashway_path::module::Refused;

use crate::modules::World;
use crate::types::Config;

/// The world of a configuration that nothing runs: names alone. Interfaces have
/// Ethernet's usual MTU, 1500 bytes, and no address.
pub struct Offline<'c>(pub &'c Config);

impl World for Offline<'_> {
    fn interface(&self, name: &str) -> Result<Interface, String> {
        let found = self.0.ifaces.iter().position(|iface| iface.name == name);
        let number = found.ok_or_else(|| format!("there is no `[iface.{name}]`"))?;
        Ok(Interface {
            number: number as u32,
            mac: Mac::default(),
            mtu: 1500.into(),
            xdp: !self.0.ifaces[number].attach.is_user_only(),
            down: Arc::default(),
        })
    }

    fn handler(&self, name: &str) -> Option<Arc<dyn handler::Instance>> {
        self.0.handler(name).map(|_| Arc::new(Nothing) as _)
    }

    fn watch(&self, _: &str, _: &FsPath, _: &Target) -> Result<Arc<dyn Watch>, String> {
        Ok(Arc::new(Nothing))
    }

    fn commands(&self, _domain: &str) -> Arc<dyn Commands> {
        Arc::new(Nothing)
    }

    fn identification(&self) -> Arc<AtomicU32> {
        Arc::default()
    }
}

impl Offline<'_> {
    /// A handler that runs nothing.
    #[must_use]
    pub fn stub() -> Arc<dyn handler::Instance> {
        Arc::new(Nothing)
    }
}

/// Nothing that runs.
struct Nothing;

impl handler::Instance for Nothing {
    fn bind(&self, _function: &str, _attrs: &Attrs) -> Result<Box<dyn Activate>, Refused> {
        Ok(Box::new(Self))
    }
}

impl Activate for Nothing {
    fn activate(&mut self, _message: &mut Message) -> Act {
        Act::Pass
    }
}

impl Watch for Nothing {
    fn see(&self, _seen: &Seen<'_>) {}
}

impl Commands for Nothing {
    fn begin(&self, _from: SocketAddr, _request: Request) -> Receiver<Outcome> {
        let (outcome, receiver) = channel();
        // The other end is here.
        let _ = outcome.send(Err("nothing runs here".to_owned()));
        receiver
    }
}
