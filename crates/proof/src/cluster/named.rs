//! Seeds whose clusters once broke an invariant, or came near to what did. `.ci/run` runs those whose
//! clusters work for ten minutes.

use std::time::Duration;

/// A seed, and why it is here.
#[derive(Debug)]
pub struct NamedSeed {
    pub seed: u64,
    /// The minutes of work.
    pub minutes: u64,
    pub why: &'static str,
}

impl NamedSeed {
    /// The seed, and how long its cluster works.
    pub fn cluster(&self) -> (u64, Duration) {
        (self.seed, Duration::from_secs(self.minutes * 60))
    }
}

pub const NAMED: &[NamedSeed] = &[
    NamedSeed { seed: 2, minutes: 10, why: "one controller manager and one scheduler" },
    NamedSeed { seed: 3, minutes: 10, why: "two of each, of which one leads" },
    NamedSeed {
        seed: 100,
        minutes: 20,
        why: "a Job was complete with fewer successes than its completions: a deleted pod that counts as failed had \
              ended without an error",
    },
    NamedSeed {
        seed: 108,
        minutes: 40,
        why: "pods of a node that was lost and came back stayed unready: the agent did not write their status again",
    },
];
