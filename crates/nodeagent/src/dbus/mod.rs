//! D-Bus, as far as the agent needs it: calls to systemd and logind, and signals of logind.
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | messages: a few types of values, written and read |
//! | [`connection`] | a connection to a bus over its socket, with file descriptors |

pub mod connection;
pub mod message;
#[cfg(test)]
pub mod testing;

pub use connection::{Bus, CallError, SYSTEM_BUS};
pub use message::{Message, MessageKind, Method, Value};
