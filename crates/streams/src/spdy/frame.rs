//! Frames of SPDY/3.1: the head of eight bytes, and the fields of control frames.

use std::io;

/// Version 3 with the bit of control frames.
const CONTROL: u16 = 0x8003;
/// The largest payload of a control frame.
pub const CONTROL_LIMIT: usize = 64 << 10;

pub const SYN_STREAM: u16 = 1;
pub const SYN_REPLY: u16 = 2;
pub const RST_STREAM: u16 = 3;
pub const SETTINGS: u16 = 4;
pub const PING: u16 = 6;
pub const GOAWAY: u16 = 7;
pub const HEADERS: u16 = 8;
pub const WINDOW_UPDATE: u16 = 9;

pub const FLAG_FIN: u8 = 1;
/// The status of RST_STREAM that ends a stream without an error of the protocol.
pub const CANCEL: u32 = 5;

/// Names and values, in lower case and in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Headers(
            pairs.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect(),
        )
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = (self.0.len() as u32).to_be_bytes().to_vec();
        for text in self.0.iter().flat_map(|(name, value)| [name, value]) {
            out.extend_from_slice(&(text.len() as u32).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    pub fn decode(block: &[u8]) -> io::Result<Self> {
        let mut rest = block;
        let count = take_u32(&mut rest)?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            let name = take_text(&mut rest)?.to_ascii_lowercase();
            pairs.push((name, take_text(&mut rest)?));
        }
        Ok(Headers(pairs))
    }
}

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a SPDY frame is too short")
}

pub fn take_u32(rest: &mut &[u8]) -> io::Result<u32> {
    let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    *rest = tail;
    Ok(u32::from_be_bytes(*head))
}

fn take_text(rest: &mut &[u8]) -> io::Result<String> {
    let length = take_u32(rest)? as usize;
    let (head, tail) = rest.split_at_checked(length).ok_or_else(short)?;
    *rest = tail;
    Ok(String::from_utf8_lossy(head).into_owned())
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    Data { stream: u32, is_last: bool, length: usize },
    Control { kind: u16, flags: u8, length: usize },
}

impl Head {
    pub fn decode(bytes: [u8; 8]) -> io::Result<Self> {
        let [a, b, c, d, flags, x, y, z] = bytes;
        let length = u32::from_be_bytes([0, x, y, z]) as usize;
        if a & 0x80 == 0 {
            let stream = u32::from_be_bytes([a, b, c, d]);
            return Ok(Head::Data { stream, is_last: flags & FLAG_FIN != 0, length });
        }
        if u16::from_be_bytes([a, b]) != CONTROL || length > CONTROL_LIMIT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is not of SPDY/3, or too large"));
        }
        Ok(Head::Control { kind: u16::from_be_bytes([c, d]), flags, length })
    }
}

fn length_bytes(length: usize) -> [u8; 3] {
    let [_, x, y, z] = (length as u32).to_be_bytes();
    [x, y, z]
}

/// The head of a data frame.
pub fn data_head(stream: u32, is_last: bool, length: usize) -> [u8; 8] {
    let ([a, b, c, d], [x, y, z]) = (stream.to_be_bytes(), length_bytes(length));
    [a, b, c, d, u8::from(is_last), x, y, z]
}

/// A whole control frame.
pub fn control(kind: u16, flags: u8, fields: &[u32], rest: &[u8]) -> Vec<u8> {
    let [x, y, z] = length_bytes(fields.len() * 4 + rest.len());
    let mut out = CONTROL.to_be_bytes().to_vec();
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[flags, x, y, z]);
    for field in fields {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_headers_survive() {
        let head = data_head(5, true, 0x012345);
        assert_eq!(Head::decode(head).unwrap(), Head::Data { stream: 5, is_last: true, length: 0x012345 });
        let ping = control(PING, 0, &[7], &[]);
        assert_eq!(ping, [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7]);
        let headers = Headers::new([("streamType", "stdin"), ("port", "80")]);
        assert_eq!(Headers::decode(&headers.encode()).unwrap(), headers);
        assert_eq!(headers.get("Streamtype"), Some("stdin"));
        assert!(
            Headers::decode(&[0, 0, 0, 9]).is_err() && Head::decode([0x80, 2, 0, 1, 0, 0, 0, 0]).is_err()
        );
    }
}
