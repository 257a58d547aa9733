//! A client for unary gRPC calls over HTTP/2 without TLS.
//!
//! Invariants: a call ends within its timeout and reads no more of a response than its limit. One connection is
//! kept; when it is lost, the next call makes another.

use crate::channel::{Channel, RpcError};
use crate::endpoint::Endpoint;
use crate::{CallError, Dialer, Limits};
use bytes::Bytes;

/// A client for one gRPC server.
pub struct GrpcClient {
    endpoint: Endpoint,
    limits: Limits,
    channel: Result<Channel, String>,
}

impl GrpcClient {
    pub fn new(endpoint: Endpoint, limits: Limits) -> Self {
        let channel = Channel::plain(&endpoint, Dialer::Direct).map_err(|why| why.to_string());
        GrpcClient { endpoint, limits, channel }
    }

    /// The same through another dialer, for endpoints on a network.
    #[must_use]
    pub fn by(self, way: Dialer) -> Self {
        let channel = Channel::plain(&self.endpoint, way).map_err(|why| why.to_string());
        GrpcClient { channel, ..self }
    }

    /// Calls a unary method, by its path, and returns the response message.
    pub async fn call(&self, path: &str, message: &[u8]) -> Result<Bytes, CallError> {
        let channel = self.channel.as_ref().map_err(|why| CallError::Connection(why.clone()))?;
        let answered = channel.call(path, message, self.limits.time, self.limits.answer).await;
        if let Err(RpcError::Late(_)) = &answered {
            // this channel is not pinged: drop a connection that may be dead
            channel.disconnect().await;
        }
        answered.map_err(CallError::from)
    }
}

impl From<RpcError> for CallError {
    fn from(why: RpcError) -> Self {
        match why {
            RpcError::Unsent(why) => CallError::Connection(why),
            RpcError::Lost(why) => CallError::Lost(why),
            RpcError::Late(time) => CallError::Late(time),
            RpcError::TooLarge(limit) => CallError::TooLarge(limit),
            RpcError::Refused { code, message } => CallError::Refused { code: code_name(code), why: message },
        }
    }
}

/// Names of the gRPC status codes.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

fn code_name(code: u16) -> &'static str {
    CODES.get(usize::from(code)).copied().unwrap_or("Unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read() {
        for (text, expected) in [
            ("localhost:4317", Ok(Endpoint::Tcp("localhost:4317".to_owned()))),
            ("dns:///a.example:1", Ok(Endpoint::Tcp("a.example:1".to_owned()))),
            ("dns://8.8.8.8/a.example:1", Ok(Endpoint::Tcp("a.example:1".to_owned()))),
            ("[::1]:4317", Ok(Endpoint::Tcp("[::1]:4317".to_owned()))),
            ("unix:///run/x", Ok(Endpoint::Unix("/run/x".into()))),
            ("unix:x", Ok(Endpoint::Unix("x".into()))),
            ("unix:///@x", Ok(Endpoint::Unix("\0x".into()))),
            ("http://a:1", Err(())),
            ("localhost", Err(())),
            (":1", Err(())),
            ("unix:", Err(())),
        ] {
            assert_eq!(text.parse::<Endpoint>().map_err(drop), expected, "{text}");
        }
    }

    #[test]
    fn refusals_have_names() {
        let message =
            |code| CallError::from(RpcError::Refused { code, message: "not now".to_owned() }).to_string();
        assert_eq!(message(14), "rpc error: code = Unavailable desc = not now");
        assert_eq!(message(99), "rpc error: code = Unknown desc = not now");
    }
}
