//! Webhooks: other servers that are asked about writes, and may change or refuse them.
//!
//! What always holds: webhooks are asked in the order of their configurations' names, and within one as it lists
//! them; a write that none of them is for costs one look into a table. A webhook that cannot be reached, takes too
//! long or answers nonsense refuses the write, unless its configuration says that it may fail. The configurations
//! themselves are nobody's to judge, so that a webhook that stands in the way of everything can be taken away.

mod clients;
mod dispatcher;
mod hook;
mod metrics;
mod mutating;
mod review;
mod table;
mod validating;

pub(crate) use metrics::Counters;
pub(super) use mutating::Mutating;
pub(super) use validating::Validating;
