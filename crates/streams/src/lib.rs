//! Streams of commands and ports over one connection.
//!
//! | module | what it is |
//! |---|---|
//! | [`spdy`] | SPDY/3.1: a connection with any number of streams, either side of it |
//! | [`websocket`] | WebSocket messages whose first byte is a channel, the server's side |
//! | [`protocol`] | names and headers of the protocols of exec, attach and port forwarding |
//!
//! Invariants: a stream that is not read stops its connection, not the memory; every length that a peer sends is
//! bounded.

pub mod protocol;
pub mod spdy;
pub mod websocket;
