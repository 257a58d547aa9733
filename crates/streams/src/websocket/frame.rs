//! Frames of a WebSocket (RFC 6455), the server's side.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Constant that is appended to the key before hashing.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Timeout of one frame.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum payload of a control frame, and of a frame whose length is one byte.
const CONTROL_LIMIT: u64 = 125;
/// The largest piece of a payload that is read at once.
const PIECE_LIMIT: u64 = 32 << 10;

/// Codes of close frames.
pub const NORMAL_CLOSURE: u16 = 1000;
pub const PROTOCOL_ERROR: u16 = 1002;
pub const TOO_BIG: u16 = 1009;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn parse(byte: u8) -> Option<Self> {
        use Opcode::{Binary, Close, Continuation, Ping, Pong, Text};
        [Continuation, Text, Binary, Close, Ping, Pong].into_iter().find(|it| *it as u8 == byte)
    }
}

/// The `Sec-WebSocket-Accept` of a key.
pub fn accept_key(key: &str) -> String {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key.as_bytes());
    digest.update(GUID);
    STANDARD.encode(digest.finish())
}

/// Writes a whole message, or a control frame.
pub async fn write(writer: &mut (impl AsyncWrite + Unpin), opcode: Opcode, payload: &[u8]) -> io::Result<()> {
    let mut head = vec![0x80 | opcode as u8];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if u64::from(length) <= CONTROL_LIMIT => head.push(length),
        (_, Ok(length)) => {
            head.push(126);
            head.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    let whole = async {
        writer.write_all(&head).await?;
        writer.write_all(payload).await?;
        writer.flush().await
    };
    env::io::timeout(WRITE_TIMEOUT, whole).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// A frame of the client, whose payload is unmasked piece by piece.
pub struct Frame<'r, R> {
    /// `None` is an opcode without a meaning.
    pub opcode: Option<Opcode>,
    pub is_final: bool,
    /// The bytes of the payload that are not read yet.
    pub rest: u64,
    reader: &'r mut R,
    mask: [u8; 4],
    at: usize,
}

impl<'r, R: AsyncRead + Unpin> Frame<'r, R> {
    /// Reads the head of a frame; `None` if it breaks the protocol.
    pub async fn read(reader: &'r mut R) -> io::Result<Option<Self>> {
        let mut head = [0; 2];
        reader.read_exact(&mut head).await?;
        let (is_final, opcode, is_masked) = (head[0] & 0x80 != 0, head[0] & 0x0f, head[1] & 0x80 != 0);
        let rest = match head[1] & 0x7f {
            126 => u64::from(reader.read_u16().await?),
            127 => reader.read_u64().await?,
            length => u64::from(length),
        };
        let is_control = opcode & 8 != 0;
        if !is_masked || is_control && rest > CONTROL_LIMIT {
            return Ok(None);
        }
        let mask = reader.read_u32().await?.to_be_bytes();
        Ok(Some(Frame { opcode: Opcode::parse(opcode), is_final, rest, reader, mask, at: 0 }))
    }

    /// The next piece of the payload; `None` at its end.
    pub async fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.rest == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; self.rest.min(PIECE_LIMIT) as usize];
        self.reader.read_exact(&mut piece).await?;
        self.rest -= piece.len() as u64;
        for byte in &mut piece {
            *byte ^= self.mask[self.at % 4];
            self.at += 1;
        }
        Ok(Some(piece))
    }

    /// The whole payload: the caller bounds it by `rest`.
    pub async fn payload(&mut self) -> io::Result<Vec<u8>> {
        let mut payload = Vec::new();
        while let Some(piece) = self.piece().await? {
            payload.extend(piece);
        }
        Ok(payload)
    }

    /// Reads the payload and drops it.
    pub async fn skip(&mut self) -> io::Result<()> {
        while self.piece().await?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_is_computed() {
        // the example of RFC 6455
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
