//! Limits on the resources that clients of a listener use.

use std::time::Duration;

/// Limits of connections, before and beside requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the connection to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// For an HTTP/2 preface, and for an HTTP/1 request head from its first byte to its last.
    pub header_timeout: Duration,
    /// Minimum time that an idle connection stays open; the maximum is twice as long.
    pub idle_timeout: Duration,
    /// Minimum time for a finite response to be sent, and for a client to read nothing; the maximum is twice
    /// as long.
    pub send_timeout: Duration,
    /// Interval of HTTP/2 pings.
    pub keep_alive_interval: Duration,
    /// Timeout of their acknowledgement.
    pub keep_alive_timeout: Duration,
    /// Concurrent requests of one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// All headers of a request together.
    pub max_header_bytes: u32,
    /// Bytes that a client may send of one HTTP/2 request body before the handler reads it.
    pub stream_window_bytes: u32,
    /// The same over all requests of a connection.
    pub connection_window_bytes: u32,
    /// The largest HTTP/2 frame accepted.
    pub max_frame_bytes: u32,
    /// Requests without a response yet, over all connections; further ones are refused unread.
    pub max_pending_requests: usize,
    /// Bytes buffered of one HTTP/2 response until the client reads it.
    pub max_send_buffer_bytes: usize,
    /// Bytes per second of the streaming responses of a connection, such as watches; zero is no limit.
    pub stream_bytes_per_second: u64,
    /// Concurrent connections; more wait in the listener's queue. When a quarter of the permits is left, idle
    /// connections are closed.
    pub max_connections: u32,
    /// Time for requests to finish after the stop.
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
            stream_bytes_per_second: 0,
            max_connections: 32_768,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}
