//! Requests of the simulation's users.

use super::history::ObjectKey;
use super::workload::Request;
use client::{Client, Error};

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// The path of an object, or of its collection for a creation.
fn path(key: &ObjectKey, is_creation: bool, subresource: &str) -> String {
    let (plural, group) = key.resource.split_once('.').unwrap_or((&key.resource, ""));
    let root = match group {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/v1"),
    };
    let namespace = match &*key.namespace {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    let name = if is_creation { String::new() } else { format!("/{}", key.name) };
    let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    format!("{root}{namespace}/{plural}{name}{subresource}")
}

/// Sends a request. Returns the status of the answer.
pub async fn send(client: &Client, request: &Request) -> anyhow::Result<u16> {
    let is_creation = request.method == "POST" && request.subresource.is_empty();
    let kind = if request.method == "PATCH" { MERGE } else { JSON };
    let uri = path(&request.key, is_creation, request.subresource);
    let sent = http::Request::builder().method(request.method).uri(uri).header("content-type", kind);
    let body = if request.body.is_null() { Vec::new() } else { request.body.to_string().into_bytes() };
    match client.request_bytes(sent.body(body)?).await {
        Ok(_) => Ok(200),
        Err(Error::Api(status)) => Ok(u16::try_from(status.code).unwrap_or(500)),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let pod = ObjectKey::new("pods", "one", "a");
        assert_eq!(path(&pod, false, "eviction"), "/api/v1/namespaces/one/pods/a/eviction");
        assert_eq!(path(&pod, true, ""), "/api/v1/namespaces/one/pods");
        assert_eq!(path(&ObjectKey::new("nodes", "", "n"), false, ""), "/api/v1/nodes/n");
        let budget = ObjectKey::new("poddisruptionbudgets.policy", "one", "b");
        assert_eq!(path(&budget, false, ""), "/apis/policy/v1/namespaces/one/poddisruptionbudgets/b");
    }
}
