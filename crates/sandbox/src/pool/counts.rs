//! What has come of a pool.

/// Numbers since the pool's start, and what is ready now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Jobs that got a sandbox that was waiting.
    pub hits: u64,
    /// Jobs for which one had to be made, by reason.
    pub misses: Misses,
    /// Sandboxes that were begun for the stock.
    pub started: u64,
    /// Those of them that could not be made.
    pub failed: u64,
    /// Sandboxes that were destroyed without a job, by reason.
    pub discarded: Discards,
    /// Sandboxes that wait, now.
    pub ready: u32,
    /// Sandboxes in the making for the stock, now.
    pub starting: u32,
}

/// Why there was no sandbox for a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Misses {
    /// None of its kind was ready; it had been asked for before, or is always kept.
    pub empty: u64,
    /// Its kind had not been asked for of late.
    pub unknown: u64,
    /// Those that there were had died.
    pub dead: u64,
    /// It may run or wait longer than sandboxes of the pool are labelled for.
    pub too_long: u64,
    /// The pool was drained.
    pub drained: u64,
}

/// Why sandboxes of the stock were destroyed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Discards {
    /// They had waited for long enough.
    pub aged: u64,
    /// Their guest was gone.
    pub dead: u64,
    /// Another kind was wanted more.
    pub displaced: u64,
    /// The pool was drained.
    pub drained: u64,
}

/// One reason for a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    Empty,
    Unknown,
    Dead,
    TooLong,
    Drained,
}

impl Misses {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        let Self {
            empty,
            unknown,
            dead,
            too_long,
            drained,
        } = *self;
        empty + unknown + dead + too_long + drained
    }

    pub(crate) const fn count(&mut self, miss: Miss) {
        match miss {
            Miss::Empty => self.empty += 1,
            Miss::Unknown => self.unknown += 1,
            Miss::Dead => self.dead += 1,
            Miss::TooLong => self.too_long += 1,
            Miss::Drained => self.drained += 1,
        }
    }
}
