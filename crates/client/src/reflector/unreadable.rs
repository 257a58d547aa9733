//! Objects that do not decode as their kind: a store that other servers wrote may hold one. It is skipped with a
//! warning, so that it does not keep a reflector from all other objects.

use api::meta::v1::PartialObjectMetadata;
use api::{Json, List, WatchEvent, from_json_unmanaged};
use serde_json::Value;

/// The items of a page that decode. `None` if the page itself does not.
pub fn readable_items<T: Json>(text: &[u8]) -> Option<List<T>> {
    let mut page: Value = serde_json::from_slice(text).ok()?;
    let items = page.get_mut("items")?.as_array_mut()?;
    items.retain(|item| match from_json_unmanaged::<T>(item.to_string().as_bytes()) {
        Ok(_) => true,
        Err(why) => {
            let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
            warn(text("namespace"), text("name"), &why);
            false
        }
    });
    from_json_unmanaged(page.to_string().as_bytes()).ok()
}

/// The metadata of a changed object that does not decode. `None` if the line is not a change.
pub fn unreadable_object(line: &[u8], why: &dyn std::fmt::Display) -> Option<PartialObjectMetadata> {
    let event = WatchEvent::<PartialObjectMetadata>::from_json(line).ok()?;
    let (WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) = event
    else {
        return None;
    };
    warn(&object.metadata.namespace, &object.metadata.name, why);
    Some(object)
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
        let page: List<Node> = readable_items(text.as_bytes()).unwrap();
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
            let object = unreadable_object(line(kind).as_bytes(), &"why").unwrap();
            assert_eq!((&*object.metadata.name, &*object.metadata.resource_version), ("n", "8"));
        }
        assert!(unreadable_object(line("ERROR").as_bytes(), &"why").is_none());
    }
}
