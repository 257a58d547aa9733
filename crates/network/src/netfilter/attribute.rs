//! Netlink messages: headers and attributes, written and read.
//!
//! Everything is aligned to four bytes. Numbers of netfilter are in network byte order, those of the header are not.

/// Flags of a message.
pub(super) const REQUEST: u16 = 0x1;
pub(super) const ACK: u16 = 0x4;
pub(super) const DUMP_INTERRUPTED: u16 = 0x10;
pub(super) const DUMP: u16 = 0x300;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;

/// Types of control messages.
pub(super) const ERROR: u16 = 2;
pub(super) const DONE: u16 = 3;

const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

/// Length of the netlink header with the header of netfilter.
pub(super) const HEADER: usize = 20;

/// The largest length of an attribute, whose header has sixteen bits for it.
pub(super) const MAX_ATTRIBUTE: usize = 0xffff;

/// Type, flags and family of a message to write.
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) family: u8,
    pub(super) resource: u16,
}

/// A buffer of messages.
#[derive(Default)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes a message; `body` writes its attributes.
    pub(super) fn message(&mut self, header: Header, sequence: u32, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&header.kind.to_ne_bytes());
        self.bytes.extend_from_slice(&header.flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&[header.family, 0]);
        self.bytes.extend_from_slice(&header.resource.to_be_bytes());
        body(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Adds flags to the message that starts at an offset.
    pub(super) fn add_flags(&mut self, start: usize, flags: u16) {
        let at = start + 6;
        let present = u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]);
        self.bytes[at..at + 2].copy_from_slice(&(present | flags).to_ne_bytes());
    }

    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.attribute(kind, |out| out.bytes.extend_from_slice(value));
    }

    pub(super) fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    pub(super) fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Text that ends with a zero byte.
    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.attribute(kind, |out| {
            out.bytes.extend_from_slice(value.as_bytes());
            out.bytes.push(0);
        });
    }

    pub(super) fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.attribute(kind | NESTED, body);
    }

    /// Appends attributes that are encoded already.
    pub(super) fn raw(&mut self, attributes: &[u8]) {
        self.bytes.extend_from_slice(attributes);
    }

    fn attribute(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        body(self);
        let length = self.bytes.len() - start;
        debug_assert!(length <= MAX_ATTRIBUTE, "an attribute of {length} bytes");
        self.bytes[start..start + 2].copy_from_slice(&(length as u16).to_ne_bytes());
        let aligned = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(aligned, 0);
    }
}

/// A message that was received.
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// What follows the netlink header.
    pub(super) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Attributes after the header of netfilter.
    pub(super) fn attributes(&self) -> Attributes<'a> {
        Attributes(self.body.get(4..).unwrap_or_default())
    }
}

/// The messages of a datagram; bytes that are no message end them.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(array(datagram, 0)?) as usize;
        let kind = u16::from_ne_bytes(array(datagram, 4)?);
        let flags = u16::from_ne_bytes(array(datagram, 6)?);
        let sequence = u32::from_ne_bytes(array(datagram, 8)?);
        let body = datagram.get(16..length)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, flags, sequence, body })
    })
}

/// `N` bytes at an offset.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Encoded attributes.
#[derive(Clone, Copy, Default)]
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Attributes<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let length = usize::from(u16::from_ne_bytes(array(rest, 0)?));
            let kind = u16::from_ne_bytes(array(rest, 2)?) & TYPE_MASK;
            let value = rest.get(4..length)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some((kind, value))
        })
    }

    pub(super) fn bytes(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find(|(present, _)| *present == kind).map(|(_, value)| value)
    }

    pub(super) fn nested(self, kind: u16) -> Option<Self> {
        self.bytes(kind).map(Attributes)
    }

    pub(super) fn u8(self, kind: u16) -> Option<u8> {
        self.bytes(kind)?.first().copied()
    }

    pub(super) fn u16(self, kind: u16) -> Option<u16> {
        array(self.bytes(kind)?, 0).map(u16::from_be_bytes)
    }

    pub(super) fn u32(self, kind: u16) -> Option<u32> {
        array(self.bytes(kind)?, 0).map(u32::from_be_bytes)
    }

    pub(super) fn u64(self, kind: u16) -> Option<u64> {
        array(self.bytes(kind)?, 0).map(u64::from_be_bytes)
    }

    pub(super) fn text(self, kind: u16) -> Option<&'a str> {
        let bytes = self.bytes(kind)?;
        std::str::from_utf8(bytes.strip_suffix(&[0]).unwrap_or(bytes)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip_and_are_aligned() {
        let mut encoder = Encoder::default();
        let header = Header { kind: 0xa00, flags: REQUEST, family: 2, resource: 0 };
        encoder.message(header, 7, |out| {
            out.text(1, "services");
            out.nested(2, |out| {
                out.u8(1, 9);
                out.u64(2, 1 << 40);
            });
        });
        let bytes = encoder.into_bytes();
        assert_eq!(bytes.len() % 4, 0);
        let found: Vec<_> = messages(&bytes).collect();
        assert_eq!((found.len(), found[0].kind, found[0].sequence), (1, 0xa00, 7));
        let attributes = found[0].attributes();
        assert_eq!(attributes.text(1), Some("services"));
        let nested = attributes.nested(2).unwrap();
        assert_eq!((nested.u8(1), nested.u64(2), nested.u32(3)), (Some(9), Some(1 << 40), None));
    }

    #[test]
    fn truncated_bytes_end_messages_and_attributes() {
        let mut encoder = Encoder::default();
        let header = Header { kind: 1, flags: 0, family: 2, resource: 0 };
        encoder.message(header, 1, |out| out.text(1, "a name of some length.."));
        let bytes = encoder.into_bytes();
        for end in 0..bytes.len() {
            assert_eq!(messages(&bytes[..end]).count(), 0, "{end}");
            assert_eq!(Attributes(&bytes[HEADER..end.max(HEADER)]).iter().count(), 0, "{end}");
        }
    }
}
