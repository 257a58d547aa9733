//! One query to one server, over UDP and, if the answer is truncated, over TCP.
//!
//! An answer counts if it comes from the server, with the id and the question of the query. The source port and the id
//! are random, so that others cannot guess an answer.

use super::super::reply::query_message;
use hickory_proto::op::{Message, MessageType, Query};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

/// The largest datagram that is read.
const MAX_DATAGRAM: usize = 4096;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("it does not answer in time")]
    Timeout,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the query cannot be encoded")]
    Query,
    #[error("the answer cannot be read")]
    Response,
}

/// An answer, and its length in bytes.
pub type Answer = (Message, usize);

/// Sends a query and waits for the answer. The caller limits the time.
pub async fn exchange(
    server: SocketAddr,
    id: u16,
    query: &Query,
    (is_dnssec_ok, is_checking_disabled): (bool, bool),
) -> Result<Answer, ExchangeError> {
    let packet = query_message(id, query, is_dnssec_ok, is_checking_disabled).ok_or(ExchangeError::Query)?;
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&packet).await?;
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let answer = Message::from_vec(&buffer[..length]).ok().filter(|it| is_answer(it, id, query));
        match answer {
            Some(answer) if answer.metadata.truncation => break,
            Some(answer) => return Ok((answer, length)),
            // a truncated answer may end within a record
            None if is_truncated(&buffer[..length], id) => break,
            None => {}
        }
    }
    over_tcp(server, id, query, &packet).await
}

async fn over_tcp(
    server: SocketAddr,
    id: u16,
    query: &Query,
    packet: &[u8],
) -> Result<Answer, ExchangeError> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(packet.len()).map_err(|_| ExchangeError::Query)?;
    stream.write_all(&[&length.to_be_bytes(), packet].concat()).await?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut bytes).await?;
    let answer = Message::from_vec(&bytes).ok().filter(|it| is_answer(it, id, query));
    answer.map(|it| (it, bytes.len())).ok_or(ExchangeError::Response)
}

fn is_answer(message: &Message, id: u16, query: &Query) -> bool {
    message.metadata.id == id
        && message.metadata.message_type == MessageType::Response
        && message.queries.first().map_or(message.answers.is_empty(), |it| it == query)
}

/// Whether the header of a packet is that of a truncated answer.
fn is_truncated(packet: &[u8], id: u16) -> bool {
    packet.len() >= 12 && packet[..2] == id.to_be_bytes() && packet[2] & 0x82 == 0x82
}
