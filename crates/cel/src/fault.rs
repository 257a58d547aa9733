//! Evaluation errors.

use std::sync::Arc;

/// The reason why an expression has no value.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The expression fails on these values. Operators that do not need the value go on.
    Failed(Arc<str>),
    /// It costs more than it may; evaluation ends.
    OverBudget,
}

pub type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(why: impl Into<Arc<str>>) -> Fault {
        Fault::Failed(why.into())
    }
}

pub(crate) fn fail<T>(why: impl Into<Arc<str>>) -> Outcome<T> {
    Err(Fault::new(why))
}

pub(crate) fn no_such_overload() -> Fault {
    Fault::new("no such overload")
}
