//! A collection of objects, and its requests.

use super::padding;
use crate::history::{Change, ChangeType, Freshness, Notice, Object, Version};
use anyhow::{Context, bail};
use client::{Client, Error};
use http::{Method, Request};
use serde_json::{Value, json};
use std::sync::Arc;

/// The definition of the custom resource.
const DEFINITION: &str = "notes.proof.example.com";

const NAMESPACE: &str = "default";

/// The objects of one resource in one namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Collection {
    pub path: Arc<str>,
    pub api_version: &'static str,
    pub kind: &'static str,
}

impl Collection {
    pub fn config_maps() -> Self {
        Collection {
            path: "/api/v1/namespaces/default/configmaps".into(),
            api_version: "v1",
            kind: "ConfigMap",
        }
    }

    pub fn secrets() -> Self {
        Collection { path: "/api/v1/namespaces/default/secrets".into(), api_version: "v1", kind: "Secret" }
    }

    /// A custom resource, which is defined first.
    pub async fn notes(client: &Client) -> anyhow::Result<Self> {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version =
            json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": DEFINITION},
            "spec": {"group": "proof.example.com", "scope": "Namespaced", "versions": [version],
                "names": {"plural": "notes", "kind": "Note", "singular": "note", "listKind": "NoteList"}}});
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        send(client, Method::POST, definitions, "application/json", Some(&definition)).await?;
        let notes = Collection {
            path: "/apis/proof.example.com/v1/namespaces/default/notes".into(),
            api_version: "proof.example.com/v1",
            kind: "Note",
        };
        established(client, definitions).await?;
        Ok(notes)
    }

    /// The body of a write.
    pub fn body(&self, name: &str, value: &str, version: Option<Version>) -> Value {
        let mut metadata = json!({"name": name, "annotations": annotations(value)});
        if let Some(version) = version {
            metadata["resourceVersion"] = version.to_string().into();
        }
        json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata})
    }

    /// The newest version of the collection.
    pub async fn version(&self, client: &Client) -> anyhow::Result<Version> {
        Ok(read_list(&send(client, Method::GET, &self.path, "", None).await?)?.0)
    }

    /// The version of the collection, which must be empty.
    pub async fn empty_version(&self, client: &Client) -> anyhow::Result<Version> {
        let (version, objects) = read_list(&send(client, Method::GET, &self.path, "", None).await?)?;
        anyhow::ensure!(objects.is_empty(), "{} is not empty", self.path);
        Ok(version)
    }

    /// Creates an object.
    pub async fn create(&self, client: &Client, name: &str, value: &str) -> anyhow::Result<Object> {
        let body = self.body(name, value, None);
        read_object(&send(client, Method::POST, &self.path, "application/json", Some(&body)).await?)
    }

    pub fn object_path(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// The annotations of a write: its value, and the padding that follows from it.
pub fn annotations(value: &str) -> Value {
    json!({"value": value, "padding": padding::of(value)})
}

/// Watches the definition until its condition `Established` is true.
async fn established(client: &Client, definitions: &str) -> anyhow::Result<()> {
    let path = format!("{definitions}?watch=true&fieldSelector=metadata.name={DEFINITION}");
    let mut lines = client.request_lines(Request::get(path).body(Vec::new())?).await?;
    while let Some(line) = lines.next_line().await? {
        let event: Value = serde_json::from_slice(&line)?;
        let conditions = event["object"]["status"]["conditions"].as_array();
        let is_true = |it: &Value| it["type"] == "Established" && it["status"] == "True";
        if conditions.is_some_and(|all| all.iter().any(is_true)) {
            return Ok(());
        }
    }
    bail!("the watch of {DEFINITION} ended before it was established")
}

/// Sends a request with a body or without one; the answer is an object.
pub async fn send(
    client: &Client,
    method: Method,
    path: &str,
    media: &str,
    body: Option<&Value>,
) -> Result<Value, Error> {
    let mut request = Request::builder().method(method).uri(path);
    if body.is_some() {
        request = request.header("Content-Type", media);
    }
    let body = body.map(|it| it.to_string().into_bytes()).unwrap_or_default();
    let request = request.body(body).map_err(|error| Error::Request(error.to_string()))?;
    let answer = client.request_bytes(request).await?;
    serde_json::from_slice(&answer).map_err(|error| Error::Decode(error.to_string()))
}

/// The query of a read.
pub fn query(freshness: Freshness, is_list: bool) -> Vec<(&'static str, String)> {
    match freshness {
        Freshness::Latest => Vec::new(),
        Freshness::Any => vec![("resourceVersion", "0".to_owned())],
        Freshness::NotOlderThan(version) if is_list => {
            vec![
                ("resourceVersion", version.to_string()),
                ("resourceVersionMatch", "NotOlderThan".to_owned()),
            ]
        }
        Freshness::NotOlderThan(version) | Freshness::Unmatched(version) => {
            vec![("resourceVersion", version.to_string())]
        }
        Freshness::Exact(version) => {
            vec![("resourceVersion", version.to_string()), ("resourceVersionMatch", "Exact".to_owned())]
        }
    }
}

/// A path with a query; values need no escapes.
pub fn with_query(path: &str, pairs: &[(&str, String)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

fn version_of(value: &Value) -> anyhow::Result<Version> {
    let text = value["metadata"]["resourceVersion"].as_str().context("there is no resource version")?;
    text.parse().with_context(|| format!("the resource version {text} is no number"))
}

pub fn read_object(value: &Value) -> anyhow::Result<Object> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &value["metadata"];
    // what is not as it was written has a name or a value that no request has
    let name = match metadata["namespace"].as_str() {
        Some(NAMESPACE) => text(&metadata["name"]),
        other => format!("{}/{}", other.unwrap_or_default(), text(&metadata["name"])),
    };
    let mut written = text(&metadata["annotations"]["value"]);
    let padding = text(&metadata["annotations"]["padding"]);
    if padding != padding::of(&written) {
        written += &format!(", with {} bytes of another padding", padding.len());
    }
    Ok(Object { name, uid: text(&metadata["uid"]), version: version_of(value)?, value: written })
}

pub fn read_list(value: &Value) -> anyhow::Result<(Version, Vec<Object>)> {
    let items = value["items"].as_array().context("a list has no items")?;
    let objects: anyhow::Result<_> = items.iter().filter(|it| is_ours(it)).map(read_object).collect();
    Ok((version_of(value)?, objects?))
}

/// Objects of the cluster itself have no value: the authority in each namespace, for one.
pub fn is_ours(value: &Value) -> bool {
    value["metadata"]["annotations"]["value"].is_string()
}

/// Whether a line of a watch says that its version has expired.
pub fn is_expired(line: &[u8]) -> bool {
    let event: Value = serde_json::from_slice(line).unwrap_or_default();
    event["type"] == "ERROR" && event["object"]["code"] == 410
}

/// A line of a watch; `None` for an object of the cluster itself.
pub fn read_notice(line: &[u8]) -> anyhow::Result<Option<Notice>> {
    let event: Value = serde_json::from_slice(line)?;
    let object = &event["object"];
    let change_type = match event["type"].as_str() {
        Some("BOOKMARK") => return Ok(Some(Notice::Bookmark(version_of(object)?))),
        Some("ADDED") => ChangeType::Added,
        Some("MODIFIED") => ChangeType::Modified,
        Some("DELETED") => ChangeType::Deleted,
        _ => bail!("{event}"),
    };
    if !is_ours(object) {
        return Ok(None);
    }
    Ok(Some(Notice::Change(Change { change_type, object: read_object(object)? })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(namespace: &str, padding: &str) -> Object {
        let annotations = json!({"value": "1-2-t30", "padding": padding});
        let metadata = json!({"name": "a", "namespace": namespace, "resourceVersion": "7", "uid": "u",
            "annotations": annotations});
        read_object(&json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn an_object_with_another_padding_or_of_another_namespace_is_not_the_one_that_was_written() {
        let right = read(NAMESPACE, &padding::of("1-2-t30"));
        assert_eq!((&*right.name, &*right.value), ("a", "1-2-t30"));
        assert_eq!(read(NAMESPACE, "1-2-t30").value, "1-2-t30, with 7 bytes of another padding");
        assert_eq!(read("other", &padding::of("1-2-t30")).name, "other/a");
    }
}
