//! Queries over UDP and TCP.

use super::fixture::{cluster, data, query};
use crate::dns::bind;
use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

const WEB: &str = "web.shop.svc.cluster.local";

async fn serve() -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listeners = bind(&["127.0.0.1:0".parse().unwrap()]).await.unwrap();
    let address = listeners.addresses()[0];
    (address, tokio::spawn(listeners.serve(cluster().handler)))
}

#[tokio::test]
async fn queries_are_answered_over_udp() {
    let (address, _server) = serve().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(address).await.unwrap();
    let mut buffer = [0; 1500];
    for _ in 0..3 {
        socket.send(&query(WEB, RecordType::A, Some(1232))).await.unwrap();
        let length = socket.recv(&mut buffer).await.unwrap();
        let message = Message::from_vec(&buffer[..length]).unwrap();
        assert_eq!(message.answers.iter().map(data).collect::<Vec<_>>(), ["10.96.0.20"]);
        // a packet without an answer does not stop the server
        socket.send(&[0; 3]).await.unwrap();
    }
}

#[tokio::test]
async fn queries_share_a_connection() {
    let (address, _server) = serve().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let packet = query(WEB, RecordType::AAAA, None);
    let frame = [&(packet.len() as u16).to_be_bytes()[..], &packet].concat();
    // two at once, in pieces
    let both = [&frame[..], &frame[..]].concat();
    for piece in both.chunks(7) {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
    }
    for _ in 0..2 {
        let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut answer).await.unwrap();
        let message = Message::from_vec(&answer).unwrap();
        assert_eq!(message.answers.iter().map(data).collect::<Vec<_>>(), ["fd00:96::20"]);
    }
    // a frame that is too long ends the connection
    stream.write_all(&[0xff; 5000]).await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
}
