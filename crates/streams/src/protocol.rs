//! Names of the protocols of exec, attach and port forwarding: headers, versions, stream types, channels.

pub use names::streams::PORT_FORWARD_V1;
use names::streams::{COMMAND_V1, COMMAND_V2, COMMAND_V3, COMMAND_V4};

/// The HTTP upgrade token of SPDY.
pub const SPDY: &str = "SPDY/3.1";

/// The header by which a client names the versions that it speaks, and the server the one that it chose.
pub const VERSION: &str = "x-stream-protocol-version";
/// The header with the versions of a server that speaks none of the client's.
pub const ACCEPTED_VERSIONS: &str = "x-accepted-stream-protocol-versions";

/// A version of exec and attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandVersion {
    V1,
    V2,
    V3,
    V4,
}

impl CommandVersion {
    /// All versions, the newest first, as a server offers them over SPDY.
    pub const ALL: [(&'static str, CommandVersion); 4] = [
        (COMMAND_V4, CommandVersion::V4),
        (COMMAND_V3, CommandVersion::V3),
        (COMMAND_V2, CommandVersion::V2),
        (COMMAND_V1, CommandVersion::V1),
    ];

    /// Whether the error stream holds a Status instead of a text.
    pub fn has_status(self) -> bool {
        self >= CommandVersion::V4
    }

    /// Whether there is a stream of terminal sizes.
    pub fn has_resize(self) -> bool {
        self >= CommandVersion::V3
    }
}

/// Headers of a SPDY stream.
pub mod header {
    pub const STREAM_TYPE: &str = "streamtype";
    pub const PORT: &str = "port";
    pub const REQUEST_ID: &str = "requestid";
}

/// Values of [`header::STREAM_TYPE`].
pub mod stream_type {
    pub const STDIN: &str = "stdin";
    pub const STDOUT: &str = "stdout";
    pub const STDERR: &str = "stderr";
    pub const ERROR: &str = "error";
    pub const RESIZE: &str = "resize";
    pub const DATA: &str = "data";
}

/// Channels of exec and attach over a WebSocket.
pub mod channel {
    pub const STDIN: u8 = 0;
    pub const STDOUT: u8 = 1;
    pub const STDERR: u8 = 2;
    pub const ERROR: u8 = 3;
    pub const RESIZE: u8 = 4;
}

/// Chooses the first version of the client that the server has.
pub fn negotiate<'c, 's>(
    client: impl IntoIterator<Item = &'c str>,
    server: impl IntoIterator<Item = &'s str> + Clone,
) -> Option<&'s str> {
    client.into_iter().find_map(|wanted| server.clone().into_iter().find(|one| *one == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_first_choice_wins() {
        let server = || CommandVersion::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(
            negotiate(["v5.channel.k8s.io", "v4.channel.k8s.io"], server()),
            Some("v4.channel.k8s.io")
        );
        assert_eq!(negotiate(["channel.k8s.io", "v4.channel.k8s.io"], server()), Some("channel.k8s.io"));
        assert_eq!(negotiate(["x"], server()), None);
    }
}
