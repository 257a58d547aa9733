//! Pods, health, configuration, metrics, verbosity.

use super::body::{self, Body};
use super::port::Port;
use super::query;
use super::service::{MetricsPage, Service};
use crate::runtime::ContainerState;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use names::node;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const VERBOSITY_LIMIT: usize = 1024;

pub fn healthz(service: &Service, request: &Request<Incoming>, port: Port) -> Response<Body> {
    let pairs = query::pairs(request.uri().query());
    let one = request.uri().path().strip_prefix("/healthz/");
    let excluded: Vec<&str> =
        pairs.iter().filter(|(key, _)| key == "exclude").map(|(_, name)| name.as_str()).collect();
    let mut checks = vec![("ping", true)];
    if port != Port::Healthz {
        checks.extend([("log", true), ("syncloop", service.deps.pods.is_syncing())]);
    }
    if let Some((_, is_well)) = one.and_then(|one| checks.iter().find(|(name, _)| *name == one)) {
        return match is_well {
            true => body::text(StatusCode::OK, "ok"),
            false => body::error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal server error: sync loop took longer than expected",
            ),
        };
    }
    checks.retain(|(name, _)| !excluded.contains(name));
    let mut text = String::new();
    for (name, is_well) in &checks {
        match is_well {
            true => text.push_str(&format!("[+]{name} ok\n")),
            false => text.push_str(&format!("[-]{name} failed: reason withheld\n")),
        }
    }
    if checks.iter().any(|(_, is_well)| !is_well) {
        return body::error(StatusCode::INTERNAL_SERVER_ERROR, &format!("{text}healthz check failed"));
    }
    match query::get(&pairs, "verbose") {
        Some(_) => body::text(StatusCode::OK, format!("{text}healthz check passed\n")),
        None => body::text(StatusCode::OK, "ok"),
    }
}

pub fn pods(service: &Service) -> Response<Body> {
    let mut text = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_vec();
    for (at, pod) in service.deps.pods.pods().iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        text.extend_from_slice(&item(&api::to_json(&**pod)));
    }
    text.extend_from_slice(b"]}");
    body::json(text)
}

/// An object as an item of a list, which says the type once.
fn item(object: &[u8]) -> Vec<u8> {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(object) else { return object.to_vec() };
    object.remove("kind");
    object.remove("apiVersion");
    Value::Object(object).to_string().into_bytes()
}

/// Pods with running containers, as the runtime knows them.
pub async fn running_pods(service: &Service) -> Response<Body> {
    let containers = match service.deps.runtime.containers(None).await {
        Ok(containers) => containers,
        Err(why) => return body::text(StatusCode::INTERNAL_SERVER_ERROR, why.to_string()),
    };
    let mut pods: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
    for container in containers.into_iter().filter(|it| it.state == ContainerState::Running) {
        let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
        let uid = label(node::POD_UID);
        if uid.is_empty() {
            continue;
        }
        let metadata = || {
            json!({
                "name": label(node::POD_NAME),
                "namespace": label(node::POD_NAMESPACE),
                "uid": uid,
                "creationTimestamp": null,
            })
        };
        let (_, all) = pods.entry(uid.clone()).or_insert_with(|| (metadata(), Vec::new()));
        all.push(
            json!({ "name": label(node::CONTAINER_NAME), "image": container.image_ref, "resources": {} }),
        );
    }
    let items: Vec<Value> = pods
        .into_values()
        .map(|(metadata, containers)| json!({ "metadata": metadata, "spec": { "containers": containers }, "status": {} }))
        .collect();
    let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
    body::json(list.to_string())
}

pub fn configz(service: &Service) -> Response<Body> {
    let mut text = br#"{"kubeletconfig":"#.to_vec();
    text.extend_from_slice(&service.deps.configuration.json());
    text.push(b'}');
    body::json(text)
}

/// Whether a query wants a summary without filesystems and networks, which take long to measure.
fn is_cpu_and_memory(query: Option<&str>) -> bool {
    let pairs = query::pairs(query);
    let mut values = pairs.iter().filter(|(name, _)| name == "only_cpu_and_memory").map(|(_, value)| value);
    // given twice, it has no effect upstream
    values.next().is_some_and(|it| it == "true") && values.next().is_none()
}

pub async fn metrics(service: &Service, page: MetricsPage, query: Option<&str>) -> Response<Body> {
    let page = match page {
        MetricsPage::Summary if is_cpu_and_memory(query) => MetricsPage::CpuAndMemory,
        page => page,
    };
    let text = match (service.deps.metrics)(page).await {
        Ok(text) => text,
        Err(why) => return body::error(StatusCode::INTERNAL_SERVER_ERROR, &why),
    };
    match page {
        MetricsPage::Summary | MetricsPage::CpuAndMemory => body::json(text),
        _ => body::response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text),
    }
}

/// Sets the verbosity of the log, by PUT.
pub async fn verbosity(service: &Service, request: Request<Incoming>) -> Response<Body> {
    let plain = |code, text: String| body::response(code, "text/plain", text);
    if request.method() != Method::PUT {
        return plain(StatusCode::NOT_ACCEPTABLE, "unsupported http method".to_owned());
    }
    let read = Limited::new(request.into_body(), VERBOSITY_LIMIT).collect().await;
    let given = read.map(|it| String::from_utf8_lossy(&it.to_bytes()).into_owned()).unwrap_or_default();
    let set = match given.parse::<i32>() {
        Ok(_) => (service.deps.set_verbosity)(&given),
        Err(_) => Err(format!("strconv.ParseInt: parsing {given:?}: invalid syntax")),
    };
    match set {
        Ok(()) => plain(StatusCode::OK, format!("successfully set klog.logging.verbosity to {given}")),
        Err(why) => {
            plain(StatusCode::BAD_REQUEST, format!("failed set klog.logging.verbosity {given}: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_limited_by_one_true_value() {
        for (query, expected) in [
            (Some("only_cpu_and_memory=true"), true),
            (Some("a=b&only_cpu_and_memory=true"), true),
            (Some("only_cpu_and_memory=false"), false),
            (Some("only_cpu_and_memory=1"), false),
            (Some("only_cpu_and_memory=true&only_cpu_and_memory=true"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(is_cpu_and_memory(query), expected, "{query:?}");
        }
    }
}
