//! Names of the stream protocols of exec, attach and port forwarding.

/// Versions of exec and attach over SPDY; the first and the fourth exist over WebSocket, too.
pub const COMMAND_V4: &str = "v4.channel.k8s.io";
pub const COMMAND_V3: &str = "v3.channel.k8s.io";
pub const COMMAND_V2: &str = "v2.channel.k8s.io";
pub const COMMAND_V1: &str = "channel.k8s.io";

/// The same over a WebSocket, as text in base64.
pub const COMMAND_V4_BASE64: &str = "v4.base64.channel.k8s.io";
pub const COMMAND_V1_BASE64: &str = "base64.channel.k8s.io";

/// The version of port forwarding over SPDY.
pub const PORT_FORWARD_V1: &str = "portforward.k8s.io";

/// Streams without channels over a WebSocket, as bytes or as text in base64: logs.
pub const BINARY: &str = "binary.k8s.io";
pub const BINARY_BASE64: &str = "base64.binary.k8s.io";
