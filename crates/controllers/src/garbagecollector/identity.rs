//! Identities of objects, in few bytes.

use client::discovery::Resource;
use std::fmt;
use std::sync::Arc;

/// The uid of an object. Servers generate UUIDs; references may contain any text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Uid {
    Uuid([u8; 16]),
    Other(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        uuid(text).map_or_else(|| Uid::Other(text.into()), Uid::Uuid)
    }
}

/// The bytes of a UUID in the form `01234567-89ab-cdef-0123-456789abcdef`, in lower case.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    let mut bytes = [0; 16];
    let (mut at, mut next) = (0, 0);
    if text.len() != 36 {
        return None;
    }
    while at < 36 {
        if matches!(at, 8 | 13 | 18 | 23) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
            continue;
        }
        bytes[next] = digit(text[at])? << 4 | digit(text[at + 1])?;
        (at, next) = (at + 2, next + 1);
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Other(text) => out.write_str(text),
            Uid::Uuid(bytes) => bytes.iter().enumerate().try_for_each(|(at, byte)| {
                if matches!(at, 4 | 6 | 8 | 10) {
                    out.write_str("-")?;
                }
                write!(out, "{byte:02x}")
            }),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The kind of an object, as a reference names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Type {
    pub api_version: String,
    pub kind: String,
}

impl Type {
    pub fn of(resource: &Resource) -> Self {
        Type { api_version: resource.api_version(), kind: resource.kind.clone() }
    }
}

/// The identity of an object that exists, or that a reference names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    pub uid: Uid,
    pub of: Arc<Type>,
    /// Empty for cluster-scoped resources.
    pub namespace: Arc<str>,
    pub name: Box<str>,
}

impl fmt::Display for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { uid, of, namespace, name } = self;
        write!(out, "[{}/{}, namespace: {namespace}, name: {name}, uid: {uid}]", of.api_version, of.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_keep_their_text() {
        for (text, is_uuid) in [
            ("01234567-89ab-cdef-0123-456789abcdef", true),
            ("01234567-89AB-cdef-0123-456789abcdef", false),
            ("01234567089ab-cdef-0123-456789abcdef", false),
            ("0123456789abcdef0123456789abcdef0123", false),
            ("none", false),
            ("", false),
        ] {
            let uid = Uid::from(text);
            assert_eq!((uid.to_string().as_str(), matches!(uid, Uid::Uuid(_))), (text, is_uuid));
        }
        assert_eq!(size_of::<Uid>(), 24);
    }
}
