//! What a file is for, and what it must therefore have.

/// What a module must have beyond being valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A handler: exports `on_rx`, and defines and exports one `memory` with a
    /// maximum within the quota.
    Handler,
    /// Any module whose functions are to be run one by one: the specification's
    /// tests, generated modules. No `on_rx`; a memory is optional and need not
    /// be exported; a maximum that is missing or over the quota becomes the
    /// quota. Imports are refused as in a handler, unless they are host calls.
    Library,
}
