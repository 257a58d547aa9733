//! A konnectivity tunnel: one gRPC stream to the proxy, which carries one connection to a server behind it.
//!
//! Invariants: neither side is read faster than the other accepts, so that a tunnel holds a bounded number of
//! buffers. A tunnel ends, with all its tasks, when either side ends.

use super::Wire;
use super::packet::{self, Packet};
use crate::channel::{Channel, Messages, RpcError, Sender};
use crate::{BadTarget, Target};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const PROCEDURE: &str = "/ProxyService/Proxy";
/// The buffer between the two sides, and the payload of one packet.
const BETWEEN: usize = 64 * 1024;
const AT_ONCE: usize = 32 * 1024;
/// The largest packet.
const LARGEST: usize = 4 * 1024 * 1024;
/// How long the proxy may take to confirm that a connection is closed.
const FAREWELL: Duration = Duration::from_secs(10);

/// Why a tunnel could not be opened.
pub(super) enum TunnelError {
    /// The proxy could not be reached.
    Unreachable(String),
    Refused(String),
}

impl From<RpcError> for TunnelError {
    fn from(why: RpcError) -> Self {
        match why {
            RpcError::Unsent(why) => TunnelError::Unreachable(why),
            other => TunnelError::Refused(other.to_string()),
        }
    }
}

impl From<BadTarget> for TunnelError {
    fn from(why: BadTarget) -> Self {
        TunnelError::Unreachable(why.to_string())
    }
}

/// Opens a tunnel. `random` distinguishes this dial from all others of the proxy.
pub(super) async fn open(
    proxy: &Target,
    to: &str,
    random: i64,
    timeout: Duration,
) -> Result<Wire, TunnelError> {
    let channel = Channel::once(proxy)?;
    let first = packet::dial(to, random);
    let (packets, mut messages) = channel.open(PROCEDURE, &first, timeout, LARGEST).await?;
    let refused = |why: &str| TunnelError::Refused(why.to_owned());
    let id = loop {
        let message = messages.next().await?.ok_or_else(|| refused("tunnel closed"))?;
        match packet::read(&message).map_err(|why| refused(&why.to_string()))? {
            Packet::Dialed { random: other, .. } if other != random => {}
            Packet::Dialed { error, id, .. } if error.is_empty() => break id,
            Packet::Dialed { error, .. } => return Err(TunnelError::Refused(error)),
            Packet::DialClosed => return Err(refused("dial closed")),
            Packet::Data { .. } | Packet::Closed | Packet::Other => {}
        }
    };
    let (near, far) = tokio::io::duplex(BETWEEN);
    tokio::spawn(async move {
        pump(id, far, packets, messages).await;
        drop(channel);
    });
    Ok(Wire::proxied(near))
}

/// Copies data between the two sides.
async fn pump(id: i64, far: DuplexStream, packets: Sender, mut messages: Messages) {
    let (mut from_near, mut to_near) = tokio::io::split(far);
    let outward = async {
        let mut read = vec![0; AT_ONCE];
        while let Ok(count @ 1..) = from_near.read(&mut read).await {
            if !packets.put(&packet::data(id, &read[..count])).await {
                return;
            }
        }
        packets.put(&packet::close(id)).await;
    };
    let inward = async {
        while let Ok(Some(message)) = messages.next().await {
            match packet::read(&message) {
                Ok(Packet::Data { id: of, data }) if of == id => {
                    if to_near.write_all(data).await.is_err() {
                        return;
                    }
                }
                Ok(Packet::Closed | Packet::DialClosed) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    tokio::pin!(inward);
    tokio::select! {
        () = &mut inward => {}
        () = outward => drop(tokio::time::timeout(FAREWELL, inward).await),
    }
}
