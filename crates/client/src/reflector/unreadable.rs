//! Objects that do not decode as their kind: a store that other servers wrote may hold one. It is skipped with a
//! warning, so that it does not keep a reflector from all other objects.

use api::meta::v1::{ObjectMeta, PartialObjectMetadata};
use api::{Json, List, WatchEvent, from_json_unmanaged, metadata_from_json};
use serde_json::Value;

/// The items of a page that decode, and the metadata of the others. `None` if the page itself does not decode.
pub fn readable_items<T: Json>(text: &[u8]) -> Option<(List<T>, Vec<ObjectMeta>)> {
    let mut unreadable = Vec::new();
    let mut page: Value = serde_json::from_slice(text).ok()?;
    let items = page.get_mut("items")?.as_array_mut()?;
    items.retain(|item| {
        let item_text = item.to_string();
        let Err(why) = from_json_unmanaged::<T>(item_text.as_bytes()) else { return true };
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
        warn(text("namespace"), text("name"), &why);
        unreadable.extend(metadata_from_json(item_text.as_bytes()).ok());
        false
    });
    Some((from_json_unmanaged(page.to_string().as_bytes()).ok()?, unreadable))
}

/// A change of an object that does not decode, of which only the metadata is known.
pub enum UnreadableEvent {
    Changed(PartialObjectMetadata),
    Deleted(PartialObjectMetadata),
}

impl UnreadableEvent {
    pub fn object(&self) -> &PartialObjectMetadata {
        match self {
            UnreadableEvent::Changed(object) | UnreadableEvent::Deleted(object) => object,
        }
    }
}

/// The change of an object that does not decode. `None` if the line is not a change.
pub fn unreadable_object(line: &[u8], why: &dyn std::fmt::Display) -> Option<UnreadableEvent> {
    let event = match WatchEvent::<PartialObjectMetadata>::from_json(line).ok()? {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => UnreadableEvent::Changed(object),
        WatchEvent::Deleted(object) => UnreadableEvent::Deleted(object),
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return None,
    };
    let metadata = &event.object().metadata;
    warn(&metadata.namespace, &metadata.name, why);
    Some(event)
}

fn warn(namespace: &str, name: &str, why: &dyn std::fmt::Display) {
    tracing::warn!(namespace, name, %why, "an object cannot be decoded and is skipped");
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::core::v1::Node;
    use api::from_json;

    #[test]
    fn an_undecodable_item_does_not_hide_the_others() {
        let node = |name: &str, cpu: &str| {
            format!(r#"{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{{"cpu":"{cpu}"}}}}}}"#)
        };
        let (good, bad) = (node("good", "1"), node("bad", "none"));
        let text = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{bad},{good}]}}"#);
        assert!(from_json::<List<Node>>(text.as_bytes()).is_err());
        let (page, unreadable) = readable_items::<Node>(text.as_bytes()).unwrap();
        assert_eq!(unreadable.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["bad"]);
        let names: Vec<&str> = page.items.iter().map(|node| &*node.metadata.name).collect();
        assert_eq!((names, &*page.metadata.resource_version), (vec!["good"], "7"));
        assert!(readable_items::<Node>(b"{}").is_none());
    }

    #[test]
    fn an_undecodable_change_is_passed_over() {
        let object =
            r#"{"metadata":{"name":"n","resourceVersion":"8"},"status":{"allocatable":{"cpu":"none"}}}"#;
        let line = |kind: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
        for kind in ["MODIFIED", "DELETED"] {
            let event = unreadable_object(line(kind).as_bytes(), &"why").unwrap();
            assert_eq!(matches!(event, UnreadableEvent::Deleted(_)), kind == "DELETED");
            let object = event.object();
            assert_eq!((&*object.metadata.name, &*object.metadata.resource_version), ("n", "8"));
        }
        assert!(unreadable_object(line("ERROR").as_bytes(), &"why").is_none());
    }
}
