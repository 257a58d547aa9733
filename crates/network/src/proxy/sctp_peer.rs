//! A client and a server of SCTP for tests, on raw sockets: kernels often have no SCTP sockets, but track its connections
//! and translate their addresses. The client sends the first packet of an association, and the server answers it.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
/// The tag of the client's end.
const CLIENT_TAG: u32 = 0x1234_5678;
const SERVER_TAG: u32 = 0x8765_4321;
/// The parameter in which the server answers.
const STATE_COOKIE: u16 = 7;

/// One packet with one chunk that begins an association.
struct Packet {
    source: Ipv4Addr,
    source_port: u16,
    destination_port: u16,
    chunk: u8,
    text: String,
}

fn open(timeout: Option<Duration>) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::SCTP)).unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout).unwrap();
    socket
}

/// The checksum of SCTP, CRC32c.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

impl Packet {
    /// The bytes after the IP header.
    fn encode(&self, header_tag: u32, own_tag: u32) -> Vec<u8> {
        let mut parameter = Vec::new();
        if !self.text.is_empty() {
            parameter.extend_from_slice(&STATE_COOKIE.to_be_bytes());
            parameter.extend_from_slice(&(4 + self.text.len() as u16).to_be_bytes());
            parameter.extend_from_slice(self.text.as_bytes());
            parameter.resize(parameter.len().next_multiple_of(4), 0);
        }
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.source_port.to_be_bytes());
        bytes.extend_from_slice(&self.destination_port.to_be_bytes());
        bytes.extend_from_slice(&header_tag.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&[self.chunk, 0]);
        bytes.extend_from_slice(&(20 + parameter.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&own_tag.to_be_bytes());
        // the window, the numbers of streams, the first number
        bytes.extend_from_slice(&65_536u32.to_be_bytes());
        bytes.extend_from_slice(&[0, 1, 0, 1, 0, 0, 0, 1]);
        bytes.extend_from_slice(&parameter);
        let sum = checksum(&bytes).to_le_bytes();
        bytes[8..12].copy_from_slice(&sum);
        bytes
    }

    /// A packet with its IP header.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let source = Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(12..16)?).ok()?);
        let bytes = bytes.get(usize::from(bytes.first()? & 0xf) * 4..)?;
        let mut unsigned = bytes.to_vec();
        unsigned.get_mut(8..12)?.fill(0);
        assert_eq!(
            bytes.get(8..12)?,
            checksum(&unsigned).to_le_bytes(),
            "the translated packet has a wrong sum"
        );
        let u16_at = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let text = match u16_at(34) {
            Some(length) => bytes.get(36..32 + usize::from(length))?.to_vec(),
            None => Vec::new(),
        };
        Some(Self {
            source,
            source_port: u16_at(0)?,
            destination_port: u16_at(2)?,
            chunk: *bytes.get(12)?,
            text: String::from_utf8(text).ok()?,
        })
    }
}

fn receive(socket: &OwnedFd) -> rustix::io::Result<Option<Packet>> {
    let mut buffer = [0; 512];
    let (length, _) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty())?;
    Ok(Packet::decode(&buffer[..length]))
}

/// Answers clients with their address, for ever.
pub(super) fn serve(address: IpAddr, port: u16) {
    let socket = open(None);
    println!("\nREADY");
    loop {
        let Ok(Some(packet)) = receive(&socket) else { continue };
        if packet.chunk != INIT || packet.destination_port != port {
            continue;
        }
        let answer = Packet {
            source: Ipv4Addr::UNSPECIFIED,
            source_port: port,
            destination_port: packet.source_port,
            chunk: INIT_ACK,
            text: format!("{address} saw {}", packet.source),
        };
        let to = SocketAddrV4::new(packet.source, 0);
        let bytes = answer.encode(CLIENT_TAG, SERVER_TAG);
        let _ = rustix::net::sendto(&socket, &bytes, SendFlags::empty(), &to);
    }
}

/// The answer of a server, or `timeout`.
pub(super) fn connect(address: IpAddr, port: u16, timeout: Duration) -> String {
    let IpAddr::V4(address) = address else { panic!("{address}") };
    let socket = open(Some(timeout));
    let source_port = 40_000 + (std::process::id() % 20_000) as u16;
    let packet = Packet {
        source: Ipv4Addr::UNSPECIFIED,
        source_port,
        destination_port: port,
        chunk: INIT,
        text: String::new(),
    };
    let bytes = packet.encode(0, CLIENT_TAG);
    rustix::net::sendto(&socket, &bytes, SendFlags::empty(), &SocketAddrV4::new(address, 0)).unwrap();
    loop {
        match receive(&socket) {
            Ok(Some(answer)) if answer.chunk == INIT_ACK && answer.destination_port == source_port => {
                assert_eq!(
                    (answer.source, answer.source_port),
                    (address, port),
                    "the answer is not translated back"
                );
                return answer.text;
            }
            Ok(_) => (),
            Err(rustix::io::Errno::INTR) => (),
            Err(_) => return "timeout".to_owned(),
        }
    }
}
