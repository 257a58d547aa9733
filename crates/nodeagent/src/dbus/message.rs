//! Messages of D-Bus: values of a few types, calls, and what of other messages the agent needs.
//!
//! A message is a fixed part, an array of header fields, and a body; every value is aligned to its size. Numbers are
//! little-endian. Of a body only the first value is read.

/// A value of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Bool(bool),
    I32(i32),
    U32(u32),
    U64(u64),
    /// The number of a file descriptor beside the message.
    Descriptor(u32),
    /// A value with its type: `v`.
    Variant(Box<Value>),
    /// Names and values: `a(sv)`.
    Properties(Vec<(String, Value)>),
    /// No auxiliary units: an empty `a(sa(sv))`.
    NoUnits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Call,
    Return,
    Error,
    Signal,
}

/// A message that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: MessageKind,
    pub serial: u32,
    /// The serial of the call that is answered.
    pub reply_to: Option<u32>,
    /// The name of an error.
    pub error: String,
    pub interface: String,
    /// The method or signal.
    pub member: String,
    pub sender: String,
    /// The first value of the body.
    pub value: Option<Value>,
}

/// Where a method is.
#[derive(Debug, Clone, Copy)]
pub struct Method<'a> {
    pub destination: &'a str,
    pub path: &'a str,
    pub interface: &'a str,
    pub member: &'a str,
}

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;
const VERSION: u8 = 1;
/// Codes of header fields.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SENDER: u8 = 7;
const SIGNATURE: u8 = 8;
/// The deepest nesting of variants.
const DEPTH: usize = 4;

impl Value {
    fn signature(&self) -> &'static str {
        match self {
            Value::Text(_) => "s",
            Value::Bool(_) => "b",
            Value::I32(_) => "i",
            Value::U32(_) => "u",
            Value::U64(_) => "t",
            Value::Descriptor(_) => "h",
            Value::Variant(_) => "v",
            Value::Properties(_) => "a(sv)",
            Value::NoUnits => "a(sa(sv))",
        }
    }

    /// The value inside a variant.
    pub fn inner(&self) -> &Value {
        match self {
            Value::Variant(value) => value.inner(),
            other => other,
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

    fn variant(&mut self, value: &Value) {
        self.signature(value.signature());
        self.value(value);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Text(text) => self.text(text),
            Value::Bool(value) => self.number(u32::from(*value)),
            Value::I32(number) => {
                self.align(4);
                self.bytes.extend(number.to_le_bytes());
            }
            Value::U32(number) | Value::Descriptor(number) => self.number(*number),
            Value::U64(number) => {
                self.align(8);
                self.bytes.extend(number.to_le_bytes());
            }
            Value::Variant(value) => self.variant(value),
            Value::Properties(entries) => self.array(|out| {
                for (name, value) in entries {
                    out.align(8);
                    out.text(name);
                    out.variant(value);
                }
            }),
            Value::NoUnits => self.array(|_| {}),
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

fn encode(kind: u8, serial: u32, body: &[Value], fields: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut values = Encoder::default();
    body.iter().for_each(|value| values.value(value));
    let signature: String = body.iter().map(Value::signature).collect();
    let mut out = Encoder { bytes: vec![b'l', kind, 0, VERSION] };
    out.number(u32::try_from(values.bytes.len()).unwrap_or(0));
    out.number(serial);
    out.array(|out| {
        fields(out);
        if !signature.is_empty() {
            out.field(SIGNATURE, "g", |out| out.signature(&signature));
        }
    });
    out.align(8);
    out.bytes.extend(values.bytes);
    out.bytes
}

/// A call of a method.
pub fn encode_call(serial: u32, method: Method<'_>, arguments: &[Value]) -> Vec<u8> {
    encode(METHOD_CALL, serial, arguments, |out| {
        out.field(PATH, "o", |out| out.text(method.path));
        out.field(DESTINATION, "s", |out| out.text(method.destination));
        out.field(INTERFACE, "s", |out| out.text(method.interface));
        out.field(MEMBER, "s", |out| out.text(method.member));
    })
}

/// An answer: a return, or an error of a name. With a descriptor the message says that one is beside it.
#[cfg(test)]
pub fn encode_reply(serial: u32, to: &Message, error: Option<&str>, value: Option<Value>) -> Vec<u8> {
    const UNIX_FDS: u8 = 9;
    let kind = if error.is_some() { ERROR } else { METHOD_RETURN };
    let has_descriptor = matches!(value, Some(Value::Descriptor(_)));
    let body: Vec<Value> = value.into_iter().collect();
    encode(kind, serial, &body, |out| {
        out.field(REPLY_SERIAL, "u", |out| out.number(to.serial));
        if !to.sender.is_empty() {
            out.field(DESTINATION, "s", |out| out.text(&to.sender));
        }
        if let Some(error) = error {
            out.field(ERROR_NAME, "s", |out| out.text(error));
        }
        if has_descriptor {
            out.field(UNIX_FDS, "u", |out| out.number(1));
        }
    })
}

/// A signal to all that want it.
#[cfg(test)]
pub fn encode_signal(serial: u32, method: Method<'_>, value: Value) -> Vec<u8> {
    encode(SIGNAL, serial, &[value], |out| {
        out.field(PATH, "o", |out| out.text(method.path));
        out.field(INTERFACE, "s", |out| out.text(method.interface));
        out.field(MEMBER, "s", |out| out.text(method.member));
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

    fn fixed<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        self.align(SIZE);
        let bytes = self.bytes.get(self.at..self.at.checked_add(SIZE)?)?;
        self.at += SIZE;
        bytes.try_into().ok()
    }

    fn number(&mut self) -> Option<u32> {
        self.fixed().map(u32::from_le_bytes)
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

    /// A value of the first type of a signature. `None` for types that are not read, and for malformed ones.
    fn value(&mut self, signature: &str, depth: usize) -> Option<Value> {
        Some(match signature.as_bytes().first()? {
            b's' | b'o' => Value::Text(self.text()?),
            b'b' => Value::Bool(self.number()? != 0),
            b'i' => Value::I32(self.fixed().map(i32::from_le_bytes)?),
            b'u' => Value::U32(self.number()?),
            b't' => Value::U64(self.fixed().map(u64::from_le_bytes)?),
            b'h' => Value::Descriptor(self.number()?),
            b'v' if depth < DEPTH => {
                let inside = self.signature()?;
                Value::Variant(Box::new(self.value(&inside, depth + 1)?))
            }
            _ => return None,
        })
    }
}

/// Reads a message. `None` if it is malformed.
pub fn decode(message: &[u8]) -> Option<Message> {
    let kind = match *message.get(1)? {
        METHOD_CALL => MessageKind::Call,
        METHOD_RETURN => MessageKind::Return,
        ERROR => MessageKind::Error,
        SIGNAL => MessageKind::Signal,
        _ => return None,
    };
    let mut input = Decoder { bytes: message, at: 8 };
    let mut decoded = Message {
        kind,
        serial: input.number()?,
        reply_to: None,
        error: String::new(),
        interface: String::new(),
        member: String::new(),
        sender: String::new(),
        value: None,
    };
    let end = usize::try_from(input.number()?).ok()?.checked_add(16)?;
    let mut body = String::new();
    while input.at < end {
        input.align(8);
        let code = input.byte()?;
        match (code, &*input.signature()?) {
            (REPLY_SERIAL, "u") => decoded.reply_to = Some(input.number()?),
            (ERROR_NAME, "s") => decoded.error = input.text()?,
            (INTERFACE, "s") => decoded.interface = input.text()?,
            (MEMBER, "s") => decoded.member = input.text()?,
            (SENDER, "s") => decoded.sender = input.text()?,
            (SIGNATURE, "g") => body = input.signature()?,
            (_, "s" | "o") => drop(input.text()?),
            (_, "g") => drop(input.signature()?),
            (_, "u") => drop(input.number()?),
            _ => return None,
        }
    }
    input.align(8);
    decoded.value = input.value(&body, 0);
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHOD: Method<'_> = Method { destination: "d", path: "/p", interface: "i", member: "M" };

    #[test]
    fn a_call_has_the_bytes_of_the_specification() {
        let bytes = encode_call(1, METHOD, &[Value::Bool(true)]);
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
    fn messages_are_read_and_broken_ones_refused() {
        let call = decode(&encode_call(7, METHOD, &[Value::Text("a".to_owned()), Value::U64(3)])).unwrap();
        assert_eq!((call.kind, call.serial, &*call.member), (MessageKind::Call, 7, "M"));
        assert_eq!(call.value, Some(Value::Text("a".to_owned())));
        for value in [
            Value::Bool(true),
            Value::I32(-1),
            Value::U32(1),
            Value::U64(u64::MAX),
            Value::Descriptor(0),
            Value::Variant(Box::new(Value::U64(5_000_000))),
        ] {
            let message = encode_reply(9, &call, None, Some(value.clone()));
            let reply = decode(&message).unwrap();
            assert_eq!((reply.kind, reply.reply_to), (MessageKind::Return, Some(7)));
            assert_eq!(reply.value, Some(value));
        }
        let message = encode_reply(8, &call, Some("a.b"), Some(Value::Text("why".to_owned())));
        let reply = decode(&message).unwrap();
        assert_eq!((reply.kind, &*reply.error), (MessageKind::Error, "a.b"));
        for length in 0..message.len() {
            // a shorter message is malformed, and does not panic
            let _ = decode(&message[..length]);
        }
        let signal = decode(&encode_signal(3, METHOD, Value::Bool(false))).unwrap();
        assert_eq!((signal.kind, signal.value), (MessageKind::Signal, Some(Value::Bool(false))));
    }
}
