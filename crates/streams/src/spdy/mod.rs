//! SPDY/3.1 as Kubernetes uses it: no server push, no priorities, no flow control windows.
//!
//! ```text
//! Connection ── open ──► SYN_STREAM ──►            peer
//!            ◄─ reply ── SYN_REPLY ◄──
//! Stream: AsyncRead + AsyncWrite, data frames in order; `shutdown` sends FIN, the peer's FIN is the end of the read
//! ```
//!
//! Peers have no windows, so a stream that is not read stops the reading of its connection.

mod compression;
mod connection;
mod dictionary;
mod frame;
mod shared;
mod stream;

pub use connection::{Connection, Incoming, Role};
pub use frame::Headers;
pub use stream::Stream;
