//! Limits on what clients take of a listener.

use std::time::Duration;

/// What a client may take of the server before and beside its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the connection to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// For an HTTP/2 preface, and for an HTTP/1 request head from its first byte to its last.
    pub header_timeout: Duration,
    /// How long a connection without a request stays open at least; at most twice as long.
    pub idle_timeout: Duration,
    /// How long an answer with an end may take to be sent, and how long a client may take nothing of what it is sent;
    /// at least, and at most twice as long.
    pub send_timeout: Duration,
    /// How often an HTTP/2 connection is asked whether it lives.
    pub keep_alive_interval: Duration,
    /// How long it may take to say so.
    pub keep_alive_timeout: Duration,
    /// Requests at the same time on one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// All headers of a request together.
    pub max_header_bytes: u32,
    /// What a client may send of one HTTP/2 request body before the handler has read it.
    pub stream_window_bytes: u32,
    /// The same over all requests of a connection.
    pub connection_window_bytes: u32,
    /// The largest HTTP/2 frame taken.
    pub max_frame_bytes: u32,
    /// Requests over all connections that have come and are not answered yet; those beyond are refused unseen.
    pub max_pending_requests: usize,
    /// What is held of one HTTP/2 answer before the client has taken it.
    pub max_send_buffer_bytes: usize,
    /// What a connection gets per second of answers that last, such as watches; zero is no limit.
    pub lasting_bytes_per_second: u64,
    /// Connections at the same time; more wait in the listener's queue. When a quarter of the places is left, those
    /// without a request are closed.
    pub max_connections: u32,
    /// How long requests may take to finish after the stop was asked for.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            send_timeout: Duration::from_secs(60),
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(15),
            max_concurrent_streams: 250,
            max_header_bytes: 1 << 20,
            stream_window_bytes: 256 << 10,
            connection_window_bytes: 4 << 20,
            max_frame_bytes: 256 << 10,
            max_pending_requests: 8192,
            max_send_buffer_bytes: 1 << 20,
            lasting_bytes_per_second: 0,
            max_connections: 32_768,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}
