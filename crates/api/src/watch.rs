//! Events of a watch.

use crate::codec::{Json, ReadError, ReadResult, Reader, Struct, Token, UnknownFields, Writer, struct_json};
use crate::meta::v1::Status;
use crate::object::{Resource, from_json, from_json_unmanaged};

/// An event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent<K> {
    Added(K),
    Modified(K),
    /// The object in its last state, with the resource version of the deletion.
    Deleted(K),
    /// Everything up to this resource version has been sent.
    Bookmark(String),
    Error(Box<Status>),
}

impl<K: Resource> WatchEvent<K> {
    /// Reads one line of a watch. The object has no managed fields: those who watch do not read them.
    pub fn from_json(text: &[u8]) -> ReadResult<Self> {
        match from_json_unmanaged::<Envelope<K>>(text) {
            Ok(Envelope { type_, object, .. }) => Ok(match &*type_ {
                "ADDED" => WatchEvent::Added(object),
                "MODIFIED" => WatchEvent::Modified(object),
                "DELETED" => WatchEvent::Deleted(object),
                "BOOKMARK" => WatchEvent::Bookmark(object.resource_version().to_owned()),
                "ERROR" => return WatchEvent::error(text),
                other => return Err(ReadError::new(format!("unknown type of a watch event: {other:?}"))),
            }),
            // a status does not read as an object of the kind
            Err(why) => WatchEvent::error(text).map_err(|_| why),
        }
    }

    fn error(text: &[u8]) -> ReadResult<Self> {
        let Envelope { type_, object, .. } = from_json::<Envelope<Status>>(text)?;
        match &*type_ {
            "ERROR" => Ok(WatchEvent::Error(Box::new(object))),
            other => Err(ReadError::new(format!("not an error: {other:?}"))),
        }
    }
}

#[derive(Default)]
struct Envelope<T> {
    type_: String,
    object: T,
    unknown_fields: UnknownFields,
}

impl<T: Json> Struct for Envelope<T> {
    fn read_field(&mut self, name: &str, input: &mut Reader<'_>) -> ReadResult<bool> {
        match name {
            "type" => input.read(&mut self.type_)?,
            "object" => input.read(&mut self.object)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn write_fields(&self, out: &mut Writer) {
        out.always("type", &self.type_);
        out.always("object", &self.object);
    }

    fn unknown_fields(&self) -> &UnknownFields {
        &self.unknown_fields
    }

    fn unknown_fields_mut(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

struct_json!(Envelope<T>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::v1::Pod;

    fn read(text: &str) -> ReadResult<WatchEvent<Pod>> {
        WatchEvent::from_json(text.as_bytes())
    }

    #[test]
    fn events_are_distinguished_by_their_type() {
        let object = r#"{"metadata":{"name":"web","resourceVersion":"7"}}"#;
        let pod: Pod = from_json(object.as_bytes()).unwrap();
        let event = |type_: &str| read(&format!(r#"{{"type":"{type_}","object":{object}}}"#));
        assert_eq!(event("ADDED").unwrap(), WatchEvent::Added(pod.clone()));
        assert_eq!(event("MODIFIED").unwrap(), WatchEvent::Modified(pod.clone()));
        assert_eq!(event("DELETED").unwrap(), WatchEvent::Deleted(pod));
        assert_eq!(event("BOOKMARK").unwrap(), WatchEvent::Bookmark("7".to_owned()));
        assert!(event("MOVED").is_err());
    }

    #[test]
    fn errors_carry_a_status_wherever_their_type_stands() {
        let status = r#"{"kind":"Status","status":"Failure","reason":"Expired","code":410}"#;
        for text in [
            format!(r#"{{"type":"ERROR","object":{status}}}"#),
            format!(r#"{{"object":{status},"type":"ERROR"}}"#),
        ] {
            assert!(matches!(read(&text).unwrap(), WatchEvent::Error(status) if status.code == 410));
        }
        assert!(read(&format!(r#"{{"type":"ADDED","object":{status}}}"#)).is_err());
    }
}
