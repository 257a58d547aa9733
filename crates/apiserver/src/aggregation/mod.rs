//! Other API servers behind this one: whole versions of the API whose requests are passed on to a service.
//!
//! `registered` keeps an object for each version that is served here, `follow` learns from the objects which versions
//! are not, `resolve` finds out where their servers are, `available` whether they answer, `learn` what they say about
//! themselves, and `pass` hands requests over to them.
//!
//! What always holds: a request comes here after it was authenticated, recorded and permitted like any other, and who
//! is calling is said to the other server by this one and never by the client. What is built in is never passed on. A
//! request looks at nothing but the routes of the moment: no lock, and no object is read.

mod available;
mod follow;
mod learn;
mod options;
mod proxy;
mod registered;
mod remote;
mod resolve;
mod routes;

pub(crate) use follow::Follower;
pub use options::Options;
pub(crate) use proxy::Incoming;
pub(crate) use registered::priorities;
pub(crate) use remote::Learned;
pub use routes::Aggregation;
pub(crate) use routes::{Listed, Priority, Routes};
