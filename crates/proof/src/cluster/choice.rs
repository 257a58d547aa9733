//! Choices that follow from a seed.

use env::{Simulated, World};

/// See the module.
pub struct Choice(World);

impl Choice {
    pub fn new(seed: u64) -> Self {
        Choice(Simulated::new(0, seed))
    }

    pub fn number(&self) -> u64 {
        env::random_u64(&self.0)
    }

    /// A number below this one, which is not 0.
    pub fn below(&self, end: u64) -> u64 {
        self.number() % end
    }

    pub fn between(&self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True with this probability in percent.
    pub fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'t, T>(&self, of: &'t [T]) -> &'t T {
        &of[self.place(of)]
    }

    /// A place in a list that is not empty.
    pub fn place<T>(&self, of: &[T]) -> usize {
        usize::try_from(self.below(of.len() as u64)).unwrap_or(0)
    }
}
