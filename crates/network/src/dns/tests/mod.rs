//! Queries as bytes, through the handler and over sockets.

mod away;
pub mod fixture;
mod hostile;
mod names;
mod sockets;
mod updates;
