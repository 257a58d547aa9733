//! Reservations: scarce things that objects of a kind hold, such as addresses, and that no two may have.
//!
//! A kind that hands out such things gives its hooks a [`Reserve`]. Before a write is checked, the kind takes
//! what the next state needs and fills it in; the [`Reservation`] that it answers with travels with the write
//! into the store and is settled there exactly once: `keep` by the committer when the write is durable, or by
//! being dropped, when it was refused, lost a race, failed, or was a dry run. A client that goes away in the
//! middle changes nothing about that, since the committer's copy decides.
//!
//! What is held follows from the stored objects alone, so a start rebuilds it from them and nothing leaks. Where other
//! processes write to the same store, what they took and gave back is seen as their writes are; of two who take the same
//! thing at once one loses, since each names what it takes to the store together with its write ([`Reservation::naming`]),
//! and tries again.

use crate::model::error::ApiError;
use crate::model::hooks::Context;
use env::World;
use parking_lot::Mutex;
use schema::Value;
use std::fmt;

/// A kind's own record of what its objects hold.
pub trait Reserve: Send + Sync {
    /// Tells of an object that is stored already: of each, before the first write.
    fn recover(&self, object: &Value);

    /// Tells of a state that another process stored. What it holds may be reserved here at the same time, by a write
    /// that is about to lose.
    fn seen(&self, object: &Value);

    /// Takes what the next state needs beyond what the old one has, and writes it into the next state.
    fn reserve(
        &self,
        next: &mut Value,
        old: Option<&Value>,
        asked: &Asked<'_>,
    ) -> Result<Reservation, ApiError>;

    /// Once kept, gives back what the last state of a deleted object held.
    fn release(&self, last: &Value) -> Reservation;

    /// What there is to be had, for those who collect numbers.
    fn ranges(&self) -> Vec<Range> {
        Vec::new()
    }
}

/// Things of one sort, and what became of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub name: String,
    pub taken: u64,
    pub free: u64,
    /// Of those who wanted a certain one.
    pub named: Outcomes,
    /// Of those who wanted any.
    pub any: Outcomes,
}

/// How often somebody got something, and how often not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub given: u64,
    pub refused: u64,
}

impl Outcomes {
    pub fn count(&mut self, given: bool) {
        if given {
            self.given += 1;
        } else {
            self.refused += 1;
        }
    }
}

/// What is known about the write that something is reserved for.
pub struct Asked<'a> {
    pub dry_run: bool,
    pub world: &'a World,
    pub context: &'a Context<'a>,
}

type Settle = Box<dyn FnOnce(bool) + Send>;

/// Something taken for a write whose outcome is not known yet.
pub struct Reservation {
    settle: Mutex<Option<Settle>>,
    named: Claims,
}

/// What a write takes and gives back, by names that are unique within the kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    pub taken: Vec<String>,
    pub freed: Vec<String>,
}

impl Reservation {
    /// `settle` is called once: with true when the write is durable, with false when it will not be.
    pub fn new(settle: impl FnOnce(bool) + Send + 'static) -> Self {
        Reservation { settle: Mutex::new(Some(Box::new(settle))), named: Claims::default() }
    }

    /// The same, of which other processes learn with the write.
    #[must_use]
    pub fn naming(mut self, named: Claims) -> Self {
        self.named = named;
        self
    }

    pub(crate) fn named(&self) -> &Claims {
        &self.named
    }

    /// The write is durable.
    pub(crate) fn keep(&self) {
        self.settle(true);
    }

    fn settle(&self, durable: bool) {
        let settle = self.settle.lock().take();
        if let Some(settle) = settle {
            settle(durable);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.settle(false);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reservation")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_reservation_is_settled_once_whatever_happens() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let make = || {
            let told = told.clone();
            Reservation::new(move |durable| told.lock().push(durable))
        };
        drop(make());
        let kept = make();
        kept.keep();
        kept.keep();
        drop(kept);
        assert_eq!(*told.lock(), [false, true]);
    }
}
