//! Tests of the `ashway` binary over real interfaces; see `tests/`.

pub mod cpus;
pub mod large;
pub mod node;
pub mod observe;
pub mod rootless;
pub mod traffic;
