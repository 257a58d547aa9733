//! A konnectivity tunnel: one gRPC stream to the proxy, which carries one connection to a server behind it.
//!
//! Invariants: neither side is read faster than the other accepts, so that a tunnel holds a bounded number of
//! buffers. A tunnel ends, with all its tasks, when either side ends.

use super::Wire;
use crate::channel::{Channel, RpcError};
use crate::{InvalidTarget, Target};
use bytes::Bytes;
use grpc::konnectivity::packet::Payload;
use grpc::konnectivity::proxy_service_client::ProxyServiceClient;
use grpc::konnectivity::{CloseRequest, Data, DialRequest, Packet, PacketType};
use grpc::tonic::Streaming;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

/// The buffer between the two sides, and the payload of one packet.
const BETWEEN: usize = 64 * 1024;
const AT_ONCE: usize = 32 * 1024;
/// The largest packet.
const LARGEST: usize = 4 * 1024 * 1024;
/// Packets that may be queued for sending.
const UNSENT: usize = 16;
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

impl From<InvalidTarget> for TunnelError {
    fn from(why: InvalidTarget) -> Self {
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
    let (packets, mut queued) = mpsc::channel(UNSENT);
    let dial = DialRequest { protocol: "tcp".to_owned(), address: to.to_owned(), random };
    let first = packet(PacketType::DialReq, Payload::DialRequest(dial));
    // the queue is empty, so this succeeds
    let _ = packets.try_send(first);
    let stream = futures_util::stream::poll_fn(move |context| queued.poll_recv(context));
    let mut client = ProxyServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST);
    let mut received = channel.within(timeout, client.proxy(stream)).await?;
    let refused = |why: &str| TunnelError::Refused(why.to_owned());
    let id = loop {
        let packet = received.message().await.map_err(RpcError::from)?;
        match packet.ok_or_else(|| refused("tunnel closed"))?.payload {
            Some(Payload::DialResponse(dialed)) if dialed.random == random => match &*dialed.error {
                "" => break dialed.connect_id,
                why => return Err(refused(why)),
            },
            Some(Payload::CloseDial(_)) => return Err(refused("dial closed")),
            _ => {}
        }
    };
    let (near, far) = tokio::io::duplex(BETWEEN);
    tokio::spawn(async move {
        pump(id, far, packets, received).await;
        drop((channel, client));
    });
    Ok(Wire::proxied(near))
}

fn packet(kind: PacketType, payload: Payload) -> Packet {
    Packet { r#type: kind.into(), payload: Some(payload) }
}

/// Copies data between the two sides.
async fn pump(
    connect_id: i64,
    far: DuplexStream,
    packets: mpsc::Sender<Packet>,
    mut received: Streaming<Packet>,
) {
    let (mut from_near, mut to_near) = tokio::io::split(far);
    let outward = async {
        let mut read = vec![0; AT_ONCE];
        while let Ok(count @ 1..) = from_near.read(&mut read).await {
            let data = Bytes::copy_from_slice(&read[..count]);
            let data = Data { connect_id, error: String::new(), data };
            if packets.send(packet(PacketType::Data, Payload::Data(data))).await.is_err() {
                return;
            }
        }
        let close = CloseRequest { connect_id };
        // the proxy may have closed the stream already
        let _ = packets.send(packet(PacketType::CloseReq, Payload::CloseRequest(close))).await;
    };
    let inward = async {
        while let Ok(Some(packet)) = received.message().await {
            let is_open = match packet.payload {
                Some(Payload::Data(data)) if data.connect_id == connect_id => {
                    to_near.write_all(&data.data).await.is_ok()
                }
                Some(Payload::CloseResponse(_) | Payload::CloseDial(_)) => false,
                _ => true,
            };
            if !is_open {
                return;
            }
        }
    };
    tokio::pin!(inward);
    tokio::select! {
        () = &mut inward => {}
        () = outward => drop(env::io::timeout(FAREWELL, inward).await),
    }
}
