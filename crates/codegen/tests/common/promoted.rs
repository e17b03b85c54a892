//! A handler's program in the kernel tier, from its text.

use ashway_abi::Budget;
use ashway_check::bpf::Image;
use ashway_codegen::instance::{self, Handler, Spec};
use ashway_codegen::normalise::{Limits, normalise};

/// The program of `on_rx`, of any path, without a share, that may not reply; `set` changes what
/// is to be another.
pub(crate) fn promoted(text: &str, spec: &Spec, set: impl FnOnce(&mut Handler<'_>)) -> Image {
    let wasm = wat::parse_str(text).unwrap();
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let on_rx = module.exports.iter().find(|(name, _)| name == "on_rx");
    let mut handler = Handler {
        module: &module,
        entry: on_rx.unwrap().1,
        path: None,
        budget: Budget {
            fuel: 1_000,
            slice: 300,
            ns: 50_000,
        },
        share: None,
        may_reply: false,
        locals_in_memory: false,
    };
    set(&mut handler);
    instance::kernel(spec, &handler).unwrap().0
}
