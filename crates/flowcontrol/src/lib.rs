//! Whose request is carried out next, when there are more than can be carried out at once.
//!
//! A [`Level`] has a number of seats. A request takes some of them while it runs and waits when too few are
//! free. Those who wait stand in queues; a flow (the requests of one client, say) is dealt a few of the queues
//! by its hash ([`hand`]) and joins the shortest, so that a flood fills some queues and leaves the others to the
//! rest. Queues take turns by the work that was done for them, not by how much waits in them. [`limits`] says
//! how many seats each level has, and lends those that nobody needs.
//!
//! What always holds: the seats taken never exceed the limit of the moment (a request that is larger than the
//! limit runs alone); no queue is longer than its bound; a request that no longer waits leaves its place; seats
//! come back however a request ends.
//!
//! Nothing here knows HTTP, users or objects, and time is handed in.

mod demand;
pub mod hand;
mod level;
pub mod limits;
mod queues;
mod usage;

pub use demand::{Demand, Demanded};
pub use level::{Entry, Level, Refused, Shape, Ticket, Waiting};
pub use queues::{QueueView, RequestView, Standing, Width};
pub use usage::{Timed, Usage};
