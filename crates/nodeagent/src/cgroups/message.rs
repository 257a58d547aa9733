//! Messages of D-Bus: calls of a few types, and what of replies the calls need.
//!
//! A message is a fixed part, an array of header fields, and a body; every value is aligned to its size. Numbers are
//! little-endian.

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variant {
    Text(String),
    Bool(bool),
    U64(u64),
    /// Names and values: `a(sv)`.
    Properties(Vec<(String, Variant)>),
    /// No auxiliary units: an empty `a(sa(sv))`.
    NoUnits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Return,
    Error,
    Other,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub kind: MessageKind,
    /// The serial of the call.
    pub serial: Option<u32>,
    /// The name of an error.
    pub error: Option<String>,
    /// The first text of the body.
    pub text: String,
}

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const VERSION: u8 = 1;
/// Codes of header fields.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

impl Variant {
    fn signature(&self) -> &'static str {
        match self {
            Variant::Text(_) => "s",
            Variant::Bool(_) => "b",
            Variant::U64(_) => "t",
            Variant::Properties(_) => "a(sv)",
            Variant::NoUnits => "a(sa(sv))",
        }
    }
}

#[derive(Default)]
struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.bytes.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(u32::try_from(text.len()).unwrap_or(0));
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.bytes.push(u8::try_from(text.len()).unwrap_or(0));
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    /// An array of structures, whose length is known at its end.
    fn array(&mut self, fill: impl FnOnce(&mut Self)) {
        self.number(0);
        let length_at = self.bytes.len() - 4;
        self.align(8);
        let start = self.bytes.len();
        fill(self);
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(0);
        self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn value(&mut self, value: &Variant) {
        match value {
            Variant::Text(text) => self.text(text),
            Variant::Bool(value) => self.number(u32::from(*value)),
            Variant::U64(number) => {
                self.align(8);
                self.bytes.extend(number.to_le_bytes());
            }
            Variant::Properties(entries) => self.array(|out| {
                for (name, value) in entries {
                    out.align(8);
                    out.text(name);
                    out.signature(value.signature());
                    out.value(value);
                }
            }),
            Variant::NoUnits => self.array(|_| {}),
        }
    }

    /// A header field: its code and a variant.
    fn field(&mut self, code: u8, signature: &str, fill: impl FnOnce(&mut Self)) {
        self.align(8);
        self.bytes.push(code);
        self.signature(signature);
        fill(self);
    }
}

fn encode(kind: u8, serial: u32, body: &[u8], fields: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut out = Encoder { bytes: vec![b'l', kind, 0, VERSION] };
    out.number(u32::try_from(body.len()).unwrap_or(0));
    out.number(serial);
    out.array(fields);
    out.align(8);
    out.bytes.extend(body);
    out.bytes
}

/// A call of a method: destination, path, interface, member.
pub fn encode_call(
    serial: u32,
    [destination, path, interface, member]: [&str; 4],
    arguments: &[Variant],
) -> Vec<u8> {
    let mut body = Encoder::default();
    arguments.iter().for_each(|argument| body.value(argument));
    let signature: String = arguments.iter().map(Variant::signature).collect();
    encode(METHOD_CALL, serial, &body.bytes, |out| {
        out.field(PATH, "o", |out| out.text(path));
        out.field(DESTINATION, "s", |out| out.text(destination));
        out.field(INTERFACE, "s", |out| out.text(interface));
        out.field(MEMBER, "s", |out| out.text(member));
        if !signature.is_empty() {
            out.field(SIGNATURE, "g", |out| out.signature(&signature));
        }
    })
}

/// An answer: a return, or an error of a name.
#[cfg(test)]
pub fn encode_reply(serial: u32, error: Option<&str>) -> Vec<u8> {
    let kind = if error.is_some() { ERROR } else { METHOD_RETURN };
    let mut body = Encoder::default();
    body.text("why");
    encode(kind, 1, &body.bytes, |out| {
        out.field(REPLY_SERIAL, "u", |out| out.number(serial));
        if let Some(error) = error {
            out.field(ERROR_NAME, "s", |out| out.text(error));
        }
        out.field(SIGNATURE, "g", |out| out.signature("s"));
    })
}

struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Decoder<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<u32> {
        self.align(4);
        let bytes = self.bytes.get(self.at..self.at.checked_add(4)?)?;
        self.at += 4;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn take(&mut self, length: usize) -> Option<String> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length + 1;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }

    fn signature(&mut self) -> Option<String> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }
}

/// Reads what a caller needs of a message. `None` if it is malformed.
pub fn decode_reply(message: &[u8]) -> Option<Reply> {
    let kind = match *message.get(1)? {
        METHOD_RETURN => MessageKind::Return,
        ERROR => MessageKind::Error,
        _ => MessageKind::Other,
    };
    let mut reply = Reply { kind, serial: None, error: None, text: String::new() };
    let mut input = Decoder { bytes: message, at: 12 };
    let end = usize::try_from(input.number()?).ok()?.checked_add(16)?;
    let mut body = String::new();
    while input.at < end {
        input.align(8);
        let code = input.byte()?;
        match (code, &*input.signature()?) {
            (REPLY_SERIAL, "u") => reply.serial = input.number(),
            (ERROR_NAME, "s") => reply.error = input.text(),
            (SIGNATURE, "g") => body = input.signature()?,
            (_, "s" | "o") => drop(input.text()?),
            (_, "g") => drop(input.signature()?),
            (_, "u") => drop(input.number()?),
            _ => return None,
        }
    }
    input.align(8);
    if body.starts_with('s') {
        reply.text = input.text()?;
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_bytes_of_the_specification() {
        let bytes = encode_call(1, ["d", "/p", "i", "M"], &[Variant::Bool(true)]);
        let mut expected = vec![b'l', 1, 0, 1, 4, 0, 0, 0, 1, 0, 0, 0];
        // five fields: 15, 14, 14, 14 and 8 bytes, each aligned to eight
        expected.extend([71, 0, 0, 0]);
        expected.extend([1, 1, b'o', 0, 2, 0, 0, 0, b'/', b'p', 0, 0, 0, 0, 0, 0]);
        for (code, text) in [(6, b'd'), (2, b'i'), (3, b'M')] {
            expected.extend([code, 1, b's', 0, 1, 0, 0, 0, text, 0, 0, 0, 0, 0, 0, 0]);
        }
        expected.extend([8, 1, b'g', 0, 1, b'b', 0, 0]);
        expected.extend([1, 0, 0, 0]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn replies_are_read_and_broken_ones_refused() {
        let reply = decode_reply(&encode_reply(7, None)).unwrap();
        assert_eq!((reply.kind, reply.serial, &*reply.text), (MessageKind::Return, Some(7), "why"));
        let message = encode_reply(8, Some("a.b"));
        let reply = decode_reply(&message).unwrap();
        assert_eq!((reply.kind, reply.error.as_deref()), (MessageKind::Error, Some("a.b")));
        for length in 0..message.len() {
            // a shorter message is malformed, and does not panic
            let _ = decode_reply(&message[..length]);
        }
    }
}
