//! A handler's memory: where its regions lie, the pages themselves, and its endpoint there.

use std::io;
use std::sync::Arc;

use ashway_abi::memory::Layout;
use ashway_check::bpf::Hook;
use ashway_config::{HandlerConfig, MemoryMode};
use ashway_handler::{Compiled, Region};
use ashway_kernel::shared;
use ashway_memory::{AllegedOffset, Memory, MemoryKind, SharedArray};

use crate::endpoint::{Endpoint, EndpointPlace};
use crate::error::InstanceError;
use crate::queue_plan::QueuePlan;

/// The pages that a handler works on, in whichever tier, and that its application maps.
#[derive(Debug)]
pub struct HandlerMemory {
    /// Its regions.
    pub layout: Layout,
    /// The pages, mapped.
    pub mapped: Arc<Memory>,
    /// Where `deliver` leads, if anywhere.
    endpoint: Option<Endpoint>,
}

impl HandlerMemory {
    /// Makes it; `hook` is where programs run that are to reach it, if any are. A message of the plan's
    /// queue has room in each slot of the endpoint.
    ///
    /// # Errors
    ///
    /// [`InstanceError::Memory`].
    pub(crate) fn create(
        config: &HandlerConfig,
        compiled: &Compiled,
        plan: &QueuePlan,
        hook: Option<Hook>,
        arena_allowed: bool,
    ) -> Result<Self, InstanceError> {
        let layout = Layout {
            guest_bytes: compiled.guest_bytes(),
            state_bytes: compiled.state_bytes(),
            endpoint_slots: config.endpoint,
            endpoint_slot_bytes: plan.slot_bytes,
        };
        let bytes = layout.total_bytes();
        let mapped = match config.memory {
            _ if hook.is_none() => Memory::anonymous(bytes),
            MemoryMode::Array if hook == Some(Hook::Tcx) => Err(only_arenas()),
            MemoryMode::Array => shared::array(bytes),
            _ if arena_allowed => shared::arena(bytes),
            MemoryMode::Auto if hook == Some(Hook::Xdp) => shared::array(bytes),
            MemoryMode::Arena | MemoryMode::Auto => {
                shared::arena(bytes).and_then(|_| Err(without_perfmon()))
            }
        }
        .map_err(|source| InstanceError::Memory {
            handler: config.name.clone(),
            bytes,
            source,
        })?;
        Ok(Self {
            layout,
            mapped: Arc::new(mapped),
            endpoint: (config.endpoint > 0).then(Endpoint::default),
        })
    }

    /// The pages, as Wasmtime gets them.
    pub(crate) fn region(&self) -> Arc<dyn Region> {
        Arc::<Memory>::clone(&self.mapped)
    }

    /// What programs know it as.
    pub(crate) fn kind(&self) -> ashway_abi::MemoryKind {
        match self.mapped.kind() {
            MemoryKind::Arena => ashway_abi::MemoryKind::Arena,
            MemoryKind::Array | MemoryKind::Anonymous => ashway_abi::MemoryKind::Array,
        }
    }

    /// Bytes that the handler and nobody else of the node writes: guest and state.
    pub(crate) const fn own_bytes(&self) -> usize {
        self.layout.guest_bytes + self.layout.state_bytes
    }

    /// A copy of these.
    #[must_use]
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.own_bytes()];
        let copied = self.mapped.copy_out(AllegedOffset(0), &mut bytes);
        copied.expect("the layout lies in the memory that was made for it");
        bytes
    }

    /// Its endpoint, if it has one; `words` are those of its queue.
    pub(crate) fn endpoint<'m>(
        &'m self,
        words: Option<&'m SharedArray>,
    ) -> Option<(&'m Endpoint, EndpointPlace<'m>)> {
        let place = EndpointPlace {
            layout: &self.layout,
            memory: &self.mapped,
            trusted: words,
        };
        self.endpoint.as_ref().map(|endpoint| (endpoint, place))
    }
}

/// What programs at TCX work in.
fn only_arenas() -> io::Error {
    let because = "it has `memory = \"array\"`, and at TCX programs work in arenas only";
    io::Error::new(io::ErrorKind::Unsupported, because)
}

/// The process can have an arena, and no program that works in it.
fn without_perfmon() -> io::Error {
    let because = "a program that uses an arena takes CAP_PERFMON";
    io::Error::new(io::ErrorKind::PermissionDenied, because)
}
