//! Why a node did not start, or stopped.

use std::io::ErrorKind;

use ashway_api::{Code, Refusal};
use ashway_codegen::normalise::NormaliseError;
use ashway_kernel::{AttachError, LoadError};
use ashway_ring::{BindError, TapDeviceError};

use ashway_config::diagnostics::Diagnostics;
use ashway_worker::instance::InstanceError;

/// Why a node did not start. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A handler cannot run in any tier.
    #[error(transparent)]
    Instance(#[from] InstanceError),

    /// The interface is not there.
    #[error("there is no interface `{iface}`")]
    NoInterface {
        /// The interface, as the configuration names it.
        iface: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },

    /// The interface cannot be taken.
    #[error("cannot take interface `{iface}`")]
    Attach {
        /// The interface.
        iface: String,
        /// Why.
        #[source]
        source: AttachError,
    },

    /// A TAP device cannot be had.
    #[error("interface `{iface}` is to be a TAP device, and cannot be")]
    TapDevice {
        /// The interface.
        iface: String,
        /// Why.
        #[source]
        source: TapDeviceError,
    },

    /// A capture in the place of an interface cannot be used.
    #[error("cannot {doing} `{}`, the capture of interface `{iface}`", file.display())]
    Capture {
        /// The interface.
        iface: String,
        /// `read` or `write`.
        doing: &'static str,
        /// The file.
        file: std::path::PathBuf,
        /// Why not.
        because: String,
    },

    /// All captures are at their ends, and one is broken or was not written.
    #[error("not all went through `{}`", file.display())]
    CaptureLost {
        /// The file.
        file: std::path::PathBuf,
        /// Why not.
        because: String,
    },

    /// A rung was asked for that needs a privilege.
    #[error("interface `{iface}` is to use XDP, which this process may not")]
    NoBpf {
        /// The interface.
        iface: String,
        /// Why, in the kernel's words.
        because: String,
    },

    /// A program of ours was turned down.
    #[error("the {what} program for `{iface}` was not accepted")]
    Load {
        /// Which.
        what: &'static str,
        /// The interface.
        iface: String,
        /// Why.
        #[source]
        source: LoadError,
    },

    /// What the configuration says of modules cannot be done here.
    #[error("{}", .0.first_line())]
    Mistakes(Diagnostics),

    /// A module takes no part in a path.
    #[error(transparent)]
    Path(#[from] ashway_path::create::NotCreated),

    /// Two paths of the interface want the same messages.
    #[error("two paths of `{iface}` cannot be told apart: {because}")]
    Demux {
        /// The interface.
        iface: String,
        /// Which.
        because: String,
    },

    /// A path of the long form cannot be.
    #[error("path `{path}` cannot be created: {because}")]
    Paths {
        /// The path.
        path: String,
        /// Why.
        because: String,
        /// The next step.
        hint: String,
    },

    /// A handler cannot have an instance for each CPU.
    #[error("{because}")]
    Instances {
        /// Why.
        because: String,
        /// The next step.
        hint: String,
    },

    /// The transmit socket cannot be had.
    #[error("no transmit socket on `{iface}`")]
    Transmit {
        /// The interface.
        iface: String,
        /// Why.
        #[source]
        source: BindError,
    },

    /// Another node answers on the control socket, or it cannot be made.
    #[error("cannot listen on the control socket `{}`", socket.display())]
    Control {
        /// The socket.
        socket: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },

    /// The Wasm runtime cannot be had.
    #[error("cannot start the Wasm runtime")]
    Engine(#[source] ashway_handler::EngineError),

    /// Every interface has been detached from the node.
    #[error("no interface is left")]
    NoIfaceLeft,

    /// The worker ended by itself.
    #[error("the worker has ended: a bug of Ashway; what it said stands above")]
    Worker,

    /// Anything else the system refused.
    #[error("cannot {doing}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

impl RunError {
    /// The exit code of the CLI.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Instance(
                InstanceError::Refused { .. }
                | InstanceError::NotParallel { .. }
                | InstanceError::NoFunction { .. }
                | InstanceError::Start { .. }
                | InstanceError::Migrate { .. },
            ) => 3,
            Self::Instance(
                InstanceError::Read { .. }
                | InstanceError::Param { .. }
                | InstanceError::NotGranted(_),
            )
            | Self::NoInterface { .. }
            | Self::Capture { .. }
            | Self::Mistakes(_)
            | Self::Path(_)
            | Self::Demux { .. } => 2,
            Self::NoBpf { .. } => 4,
            _ if self.lacks_privilege() => 4,
            Self::Transmit {
                source: BindError::NotSupported,
                ..
            }
            | Self::TapDevice {
                source: TapDeviceError::Missing(_),
                ..
            } => 6,
            _ => 1,
        }
    }

    /// Whether the process may not do what would otherwise work.
    fn lacks_privilege(&self) -> bool {
        match self {
            Self::Load { source, .. } | Self::Instance(InstanceError::Load { source, .. }) => {
                matches!(source, LoadError::Denied { .. })
            }
            Self::Attach { source, .. } => matches!(source, AttachError::Denied { .. }),
            Self::Transmit { source, .. } => matches!(source, BindError::Permission),
            Self::TapDevice { source, .. } => matches!(source, TapDeviceError::Denied(_)),
            Self::System { source, .. }
            | Self::Control { source, .. }
            | Self::Instance(
                InstanceError::Memory { source, .. } | InstanceError::Channels { source, .. },
            ) => source.kind() == ErrorKind::PermissionDenied,
            _ => false,
        }
    }

    /// The message, its causes, and the next step.
    #[must_use]
    pub fn report(&self) -> (String, Vec<String>, Option<String>) {
        let mut causes = Vec::new();
        let mut source = match self {
            // Its words have it already.
            Self::Instance(InstanceError::Param { .. }) => None,
            _ => std::error::Error::source(self),
        };
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        if let Self::NoBpf { because, .. }
        | Self::Capture { because, .. }
        | Self::CaptureLost { because, .. } = self
        {
            causes.push(because.clone());
        }
        (self.to_string(), causes, self.hint())
    }

    /// The same, for a request.
    pub(crate) fn refusal(&self) -> Refusal {
        let (message, causes, hint) = self.report();
        // The exit codes of the command.
        let code = match self.exit_code() {
            2 => Code::Usage,
            3 => Code::HandlerRefused,
            4 => Code::PrivilegeMissing,
            6 => Code::NotSupported,
            _ => Code::Failed,
        };
        let message: Vec<_> = std::iter::once(message).chain(causes).collect();
        Refusal::new(code, message.join(": "), hint.unwrap_or_default())
    }

    /// What can be shown of the text at fault, line by line
    /// ([`NormaliseError::caret`](ashway_codegen::normalise::NormaliseError::caret)).
    pub fn caret(&self) -> impl Iterator<Item = &str> {
        let refused = match self {
            Self::Instance(InstanceError::Refused { source, .. }) => Some(source),
            _ => None,
        };
        refused.into_iter().flat_map(NormaliseError::caret)
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Instance(InstanceError::Refused { hint, .. })
            | Self::Paths { hint, .. }
            | Self::Instances { hint, .. } => hint.clone(),
            Self::Instance(InstanceError::NotGranted(missing)) => missing.hint(),
            Self::Instance(InstanceError::NotParallel { source, .. }) => source.hint().to_owned(),
            Self::Instance(InstanceError::Param { source, .. }) => source.hint(),
            Self::Instance(InstanceError::NoFunction { .. }) => {
                "write `ASHWAY_HANDLER int on_rx(int len, int channel)`".to_owned()
            }
            Self::NoInterface { .. } => "`ip link` lists the interfaces of this namespace".into(),
            Self::Attach { source, .. } => source.hint().to_owned(),
            Self::TapDevice { source, .. } => source.hint().to_owned(),
            Self::Capture { doing: "read", .. } => "give a pcap or pcapng file of Ethernet frames \
                                                    (`tcpdump -i IFACE -w FILE`)"
                .to_owned(),
            Self::CaptureLost { .. } => "the frames before that place were worked on; the lines \
                                         above count them"
                .to_owned(),
            Self::NoBpf { .. } => {
                "give the process CAP_BPF and CAP_NET_ADMIN, or set `attach = \"auto\"`; \
                 `ashway doctor` shows what is missing"
                    .to_owned()
            }
            Self::Load { source, .. } => source.hint().to_owned(),
            Self::Demux { .. } => {
                "add a test to one of them, so that it is the more specific".into()
            }
            Self::Path(source) => source.hint.clone(),
            Self::Mistakes(mistakes) => mistakes.list().first()?.hint.clone()?,
            Self::Transmit { source, .. } => source.hint().to_owned(),
            Self::Control { .. } => {
                "give each node its own, where you may write: `--socket PATH`".to_owned()
            }
            Self::NoIfaceLeft => "what was detached by hand a node does not take back: start it \
                                  again"
                .to_owned(),
            Self::Instance(InstanceError::Load { source, .. }) => match source {
                LoadError::Denied { .. } | LoadError::Exhausted { .. } => source.hint().to_owned(),
                _ => "this is a bug of Ashway; please report it".to_owned(),
            },
            Self::Instance(InstanceError::Memory { source, .. })
                if source.kind() == ErrorKind::PermissionDenied =>
            {
                "this memory needs CAP_BPF, an arena CAP_PERFMON, too; `ashway doctor` shows what \
                 is missing"
                    .to_owned()
            }
            _ => return None,
        })
    }
}
