//! Reservations: values that objects of a kind hold exclusively, such as addresses and ports.
//!
//! A kind that allocates such values gives its hooks a [`Reserve`]. Before a write is validated, the kind allocates
//! the values that the next state needs and sets them; the returned [`Reservation`] travels with the write into the
//! store and is settled there exactly once: `keep` by the committer when the write is durable, or by being dropped,
//! when it was rejected, lost a race, failed, or was a dry run. A client that disconnects meanwhile changes nothing,
//! since the committer's copy decides.
//!
//! The allocated values follow from the stored objects alone, so a start rebuilds them and nothing leaks. Where other
//! processes write to the same store, their allocations are applied with their writes. Of two processes that allocate
//! the same value at once one fails and retries, since each write names its values to the store
//! ([`Reservation::naming`]).

use crate::model::context::Context;
use crate::model::error::ApiError;
use env::World;
use parking_lot::Mutex;
use schema::Value;
use std::fmt;

/// The allocator of a kind.
pub trait Reserve: Send + Sync {
    /// Adds a stored object. Called for each one before the first write.
    fn recover(&self, object: &Value);

    /// Adds a state that another process stored. Its values may be reserved here at the same time, by a write that is
    /// about to fail.
    fn seen(&self, object: &Value);

    /// Allocates the values that the next state needs beyond those of the old one, and sets them in the next state.
    fn reserve(
        &self,
        next: &mut Value,
        old: Option<&Value>,
        request: &ReserveRequest<'_>,
    ) -> Result<Reservation, ApiError>;

    /// Once kept, frees the values of the last state of a deleted object.
    fn release(&self, last: &Value) -> Reservation;

    /// The ranges of values, for metrics.
    fn ranges(&self) -> Vec<Range> {
        Vec::new()
    }
}

/// A range of values, and its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub name: String,
    pub taken: u64,
    pub free: u64,
    /// Requests for a certain value.
    pub named: Outcomes,
    /// Requests for any value.
    pub any: Outcomes,
}

/// How many requests were granted and refused.
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

/// The write that a reservation is for.
pub struct ReserveRequest<'a> {
    pub dry_run: bool,
    pub world: &'a World,
    pub context: &'a Context<'a>,
}

type Settle = Box<dyn FnOnce(bool) + Send>;

/// Values that are allocated for a write whose outcome is not known yet.
pub struct Reservation {
    settle: Mutex<Option<Settle>>,
    named: Claims,
}

/// The values that a write allocates and frees, by names that are unique within the kind.
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

    /// Names the values, so that the store detects conflicts with other processes.
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
    fn a_reservation_is_settled_exactly_once() {
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let make = || {
            let outcomes = outcomes.clone();
            Reservation::new(move |durable| outcomes.lock().push(durable))
        };
        drop(make());
        let kept = make();
        kept.keep();
        kept.keep();
        drop(kept);
        assert_eq!(*outcomes.lock(), [false, true]);
    }
}
