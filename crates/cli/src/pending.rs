//! Stand-ins for what the daemon does not offer yet.

/// `ashway doctor`.
pub(crate) mod doctor {
    /// Examines the host.
    pub(crate) fn run(_json: bool, _ifaces: &[String]) -> Result<String, String> {
        Err("no examination in this build".to_owned())
    }
}

/// `ashway bench`.
pub(crate) mod bench {
    /// Measures remote increment.
    pub(crate) fn counter(_json: bool) -> Result<String, String> {
        Err("no benchmark in this build".to_owned())
    }
}
