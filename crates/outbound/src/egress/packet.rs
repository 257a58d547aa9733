//! Packets of a konnectivity tunnel, in protobuf.
//!
//! ```text
//! packet          {1: type, n: payload, where n is ...}
//! dial request    2 {1: protocol, 2: address, 3: random}   requests a connection
//! dial response   3 {1: error, 2: id, 3: random}           the connection, or why there is none
//! data            4 {1: id, 2: error, 3: bytes}            of a connection, in either direction
//! close request   5 {1: id}                                the client closes it
//! close response  6 {1: error, 2: id}                      it is closed
//! close dial      7 {1: random}                            the dial was abandoned
//! ```

use schema::proto::{Backward, DELIMITED, ProtoError, Reader, VARINT};

const CLOSE_REQUEST: u64 = 2;
const DATA: u64 = 4;

/// A packet from the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet<'p> {
    Dialed {
        error: String,
        id: i64,
        random: i64,
    },
    DialClosed,
    Data {
        id: i64,
        data: &'p [u8],
    },
    Closed,
    /// A packet that this client does not use.
    Other,
}

pub(super) fn dial(address: &str, random: i64) -> Vec<u8> {
    let mut out = Backward::new(64 + address.len());
    out.varint_field(3, random as u64);
    out.bytes_field(2, address.as_bytes());
    out.bytes_field(1, b"tcp");
    out.enclose(2, 0);
    out.finish()
}

pub(super) fn data(id: i64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Backward::new(64 + bytes.len());
    out.bytes_field(3, bytes);
    out.varint_field(1, id as u64);
    out.enclose(4, 0);
    out.varint_field(1, DATA);
    out.finish()
}

pub(super) fn close(id: i64) -> Vec<u8> {
    let mut out = Backward::new(64);
    out.varint_field(1, id as u64);
    out.enclose(5, 0);
    out.varint_field(1, CLOSE_REQUEST);
    out.finish()
}

/// Decodes a packet. Its kind follows from the field that is set.
pub(super) fn read(message: &[u8]) -> Result<Packet<'_>, ProtoError> {
    let mut reader = Reader::new(message);
    let mut packet = Packet::Other;
    while let Some((number, wire)) = reader.tag("Packet")? {
        match (number, wire) {
            (3, DELIMITED) => {
                let part = Payload::read(reader.delimited()?)?;
                let error = String::from_utf8_lossy(part.texts[0]).into_owned();
                packet = Packet::Dialed { error, id: part.numbers[1], random: part.numbers[2] };
            }
            (4, DELIMITED) => {
                let part = Payload::read(reader.delimited()?)?;
                packet = Packet::Data { id: part.numbers[0], data: part.texts[2] };
            }
            (6, DELIMITED) => {
                reader.delimited()?;
                packet = Packet::Closed;
            }
            (7, DELIMITED) => {
                reader.delimited()?;
                packet = Packet::DialClosed;
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(packet)
}

/// The first three fields of a payload, each a number or a byte string.
#[derive(Default)]
struct Payload<'p> {
    numbers: [i64; 3],
    texts: [&'p [u8]; 3],
}

impl<'p> Payload<'p> {
    fn read(message: &'p [u8]) -> Result<Self, ProtoError> {
        let mut reader = Reader::new(message);
        let mut part = Payload::default();
        while let Some((number, wire)) = reader.tag("Packet")? {
            match (number, wire) {
                (1..=3, VARINT) => part.numbers[number as usize - 1] = reader.varint()? as i64,
                (1..=3, DELIMITED) => part.texts[number as usize - 1] = reader.delimited()?,
                (_, wire) => reader.skip(wire)?,
            }
        }
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_written_as_others_read_them() {
        let dial = dial("a:1", 5);
        assert_eq!(dial, b"\x12\x0c\x0a\x03tcp\x12\x03a:1\x18\x05");
        assert_eq!(data(7, b"xy"), b"\x08\x04\x22\x06\x08\x07\x1a\x02xy");
        assert_eq!(close(7), b"\x08\x02\x2a\x02\x08\x07");
    }

    #[test]
    fn packets_are_read() {
        let dialed = b"\x08\x01\x1a\x08\x0a\x02no\x10\x07\x18\x05";
        assert_eq!(read(dialed), Ok(Packet::Dialed { error: "no".to_owned(), id: 7, random: 5 }));
        assert_eq!(read(b"\x08\x04\x22\x06\x08\x07\x1a\x02xy"), Ok(Packet::Data { id: 7, data: b"xy" }));
        assert_eq!(read(b"\x08\x03\x32\x02\x10\x07"), Ok(Packet::Closed));
        assert_eq!(read(b"\x08\x05\x3a\x02\x08\x05"), Ok(Packet::DialClosed));
        // an unknown packet type, and an empty packet
        assert_eq!(read(b"\x08\x09\x4a\x02\x08\x05"), Ok(Packet::Other));
        assert_eq!(read(b""), Ok(Packet::Other));
        for nonsense in [&b"\x1a\xff"[..], b"\x22\x04\x1a\x09xy", b"\xff\xff", b"\0"] {
            assert!(read(nonsense).is_err(), "{nonsense:?}");
        }
    }
}
