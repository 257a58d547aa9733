//! A tunnel to a konnectivity proxy: one connection to it, and in that one stream of packets, for one connection to
//! somebody behind it.
//!
//! What always holds: nobody is read from faster than the other side takes it, so that a tunnel holds a few buffers and
//! no more. A tunnel ends when either side does, with everything that belongs to it.

use super::Wire;
use super::packet::{self, Told};
use crate::channel::{Channel, Messages, RpcError, Sender};
use crate::{BadTarget, Target};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const PROCEDURE: &str = "/ProxyService/Proxy";
/// Bytes that one side sent and the other has not taken, and bytes that go in one packet.
const BETWEEN: usize = 64 * 1024;
const AT_ONCE: usize = 32 * 1024;
/// How large a packet may be.
const LARGEST: usize = 4 * 1024 * 1024;
/// How long the proxy may take to say that a connection has ended that is not needed any longer.
const FAREWELL: Duration = Duration::from_secs(10);

/// Why there is no tunnel.
pub(super) enum Failed {
    /// The proxy could not be asked.
    Unasked(String),
    Refused(String),
}

impl From<RpcError> for Failed {
    fn from(why: RpcError) -> Self {
        match why {
            RpcError::Unsent(why) => Failed::Unasked(why),
            other => Failed::Refused(other.to_string()),
        }
    }
}

impl From<BadTarget> for Failed {
    fn from(why: BadTarget) -> Self {
        Failed::Unasked(why.to_string())
    }
}

/// Opens a tunnel. `random` tells this request from all others that the proxy has.
pub(super) async fn open(proxy: &Target, to: &str, random: i64, patience: Duration) -> Result<Wire, Failed> {
    let channel = Channel::once(proxy)?;
    let first = packet::dial(to, random);
    let (packets, mut messages) = channel.open(PROCEDURE, &first, patience, LARGEST).await?;
    let refused = |why: &str| Failed::Refused(why.to_owned());
    let id = loop {
        let message = messages.next().await?.ok_or_else(|| refused("tunnel closed"))?;
        match packet::read(&message).map_err(|why| refused(&why.to_string()))? {
            Told::Dialed { random: other, .. } if other != random => {}
            Told::Dialed { error, id, .. } if error.is_empty() => break id,
            Told::Dialed { error, .. } => return Err(Failed::Refused(error)),
            Told::DialClosed => return Err(refused("dial closed")),
            Told::Data { .. } | Told::Closed | Told::Other => {}
        }
    };
    let (near, far) = tokio::io::duplex(BETWEEN);
    tokio::spawn(async move {
        pump(id, far, packets, messages).await;
        drop(channel);
    });
    Ok(Wire::proxied(near))
}

/// Passes on what both sides say.
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
                Ok(Told::Data { id: of, data }) if of == id => {
                    if to_near.write_all(data).await.is_err() {
                        return;
                    }
                }
                Ok(Told::Closed | Told::DialClosed) | Err(_) => return,
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
