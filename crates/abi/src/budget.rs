//! How much one activation of a handler may use, and in which parts.

/// How much an activation may use.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Fuel in all.
    pub fuel: u64,
    /// Fuel that may be spent without a look at the clock.
    pub slice: u32,
    /// Time, in ns.
    pub ns: u64,
}

/// The clock starts with the first look at it, so a part of the slice is for what
/// comes before that, and three quarters are for what comes between two looks: a
/// handler that is stopped has run, beyond its time, for less than one slice in
/// all. How much it is then goes by the clock (`codegen/src/promote/fuel.rs`).
impl Budget {
    /// Fuel before the first look.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.fuel.min(u64::from(self.slice / 8))
    }

    /// Most fuel between two looks.
    #[must_use]
    pub fn next(&self) -> u32 {
        self.slice - self.slice / 4
    }

    /// Fuel behind the first look, when nothing is known.
    #[must_use]
    pub fn second(&self) -> u32 {
        self.slice.div_ceil(16)
    }

    /// Fuel between two looks beyond what the clock leaves time for.
    #[must_use]
    pub fn least(&self) -> u32 {
        self.slice.div_ceil(64)
    }
}
