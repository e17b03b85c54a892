//! Stand-ins for what the daemon does not offer yet.

/// `ashway bench`.
pub(crate) mod bench {
    /// Measures remote increment.
    pub(crate) fn counter(_json: bool) -> Result<String, String> {
        Err("no benchmark in this build".to_owned())
    }
}
