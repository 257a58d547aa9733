//! API Priority and Fairness: which request executes next when there are more than can execute at once.
//!
//! A [`Level`] has a number of seats. A request occupies some of them while it executes, and waits while too few
//! are free. Waiting requests are queued; a flow (the requests of one client, for example) is dealt a few of the
//! queues by its hash ([`hand`]) and joins the shortest, so that a flood fills some queues and leaves the others to
//! other flows. Queues are served by the work done for them, not by their length. [`limits`] computes the seats of
//! each level, and lends unused ones.
//!
//! Invariants: the occupied seats never exceed the current limit (a request larger than the limit executes alone);
//! no queue exceeds its bound; a cancelled request leaves its queue; seats are returned however a request ends.
//!
//! This crate knows neither HTTP nor users nor objects, and the caller passes the time.

mod demand;
pub mod hand;
mod level;
pub mod limits;
mod queues;
mod usage;

pub use demand::{Demand, DemandStats};
pub use level::{Entry, Level, QueuedTicket, RejectReason, Shape, Ticket};
pub use queues::{QueueTotals, QueueView, RequestView, Width};
pub use usage::{TimedHistogram, Usage};
