//! The metrics APIs as a source of metrics: resource, custom and external metrics of aggregated servers.

use super::metrics::{Metrics, PodMetric, PodMetrics};
use crate::scales::Scales;
use api::autoscaling::v2::CrossVersionObjectReference;
use api::meta::v1::APIGroup;
use api::{Json, List, Quantity, Time, Value};
use client::{Client, Failure};
use names::Names;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The window of metrics that do not name one.
const WINDOW: Duration = Duration::from_secs(60);
const CUSTOM: &str = "custom metrics API";

pub(super) struct ApiMetrics {
    client: Client,
    names: Arc<Names>,
    scales: Scales,
}

impl ApiMetrics {
    pub fn new(client: Client, names: Arc<Names>) -> Self {
        ApiMetrics { scales: Scales::new(client.clone()), client, names }
    }

    /// Gets a path with the selectors that are not empty.
    async fn get<T: Json>(&self, mut path: String, selectors: &[(&str, &str)]) -> Result<T, Failure> {
        let mut sign = '?';
        for (name, text) in selectors.iter().filter(|(_, text)| !text.is_empty()) {
            path.extend([sign]);
            path.push_str(name);
            path.push('=');
            escape(text, &mut path);
            sign = '&';
        }
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|why| client::Error::Request(why.to_string()))?;
        Ok(self.client.request(request).await?)
    }

    /// Gets the metrics of a list; an empty list is an error.
    async fn list(&self, path: String, selectors: &[(&str, &str)], api: &str) -> Result<Vec<Value>, Failure> {
        let list: List<Value> = self.get(path, selectors).await?;
        if list.items.is_empty() {
            return Err(no_metrics(api));
        }
        Ok(list.items)
    }

    /// The path of the custom metrics API, in the preferred version of its server.
    async fn custom(&self) -> Result<String, Failure> {
        let group: APIGroup = self.get(format!("/apis/{}", self.names.group("custom.metrics")), &[]).await?;
        let preferred = Some(group.preferred_version).filter(|it| !it.group_version.is_empty());
        let version = preferred.or_else(|| group.versions.into_iter().next());
        let version = version.ok_or_else(|| no_metrics(CUSTOM))?;
        Ok(format!("/apis/{}", version.group_version))
    }
}

fn no_metrics(api: &str) -> Failure {
    Failure::Other(format!("no metrics returned from {api}"))
}

/// Percent-encodes the characters that a query may not hold.
fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// A quantity in thousandths.
fn milli(quantity: &Value) -> Result<i64, Failure> {
    let text = match quantity {
        Value::Int(number) => number.to_string(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    let parsed = text.parse::<Quantity>();
    parsed.map(|it| it.milli()).map_err(|why| Failure::Other(format!("{text:?}: {why}")))
}

/// The value of a custom or external metric, in thousandths.
fn value(metric: &Value) -> Result<i64, Failure> {
    milli(metric.at(&["value"]).unwrap_or(&Value::Null))
}

/// When a metric was measured.
fn timestamp(metric: &Value) -> Result<Time, Failure> {
    let text = metric.text(&["timestamp"]);
    let time = schema::time::to_unix(text).map(Time);
    time.ok_or_else(|| Failure::Other(format!("{text:?} is not a timestamp of a metric")))
}

impl Metrics for ApiMetrics {
    async fn resource(
        &self,
        namespace: &str,
        pods: &str,
        resource: &str,
        container: Option<&str>,
    ) -> Result<PodMetrics, Failure> {
        let path = format!("/apis/{}/v1beta1/namespaces/{namespace}/pods", self.names.group("metrics"));
        let list = self.list(path, &[("labelSelector", pods)], "resource metrics API").await?;
        pod_usage(namespace, &list, resource, container)
    }

    async fn pods(
        &self,
        namespace: &str,
        pods: &str,
        metric: &str,
        selector: &str,
    ) -> Result<PodMetrics, Failure> {
        let path = format!("{}/namespaces/{namespace}/pods/*/{metric}", self.custom().await?);
        let selectors = [("labelSelector", pods), ("metricLabelSelector", selector)];
        let of = |it: &Value| {
            let name = it.text(&["describedObject", "name"]).to_owned();
            let seconds = it.at(&["windowSeconds"]).and_then(Value::as_int);
            let window = seconds.and_then(|it| u64::try_from(it).ok()).map_or(WINDOW, Duration::from_secs);
            Ok((name, PodMetric { value: value(it)?, at: timestamp(it)?, window }))
        };
        self.list(path, &selectors, CUSTOM).await?.iter().map(of).collect()
    }

    async fn object(
        &self,
        namespace: &str,
        object: &CrossVersionObjectReference,
        metric: &str,
        selector: &str,
    ) -> Result<i64, Failure> {
        let base = self.custom().await?;
        let version = if object.api_version.is_empty() { "v1" } else { &object.api_version };
        let path = if object.kind == "Namespace" && version == "v1" {
            format!("{base}/namespaces/{namespace}/metrics/{metric}")
        } else {
            let resource = self.scales.resource(version, &object.kind).await?;
            let dot = if resource.group.is_empty() { "" } else { "." };
            let plural = format!("{}{dot}{}", resource.plural, resource.group);
            format!("{base}/namespaces/{namespace}/{plural}/{}/{metric}", object.name)
        };
        let list = self.list(path, &[("metricLabelSelector", selector)], CUSTOM).await?;
        value(list.first().ok_or_else(|| no_metrics(CUSTOM))?)
    }

    async fn external(&self, namespace: &str, metric: &str, selector: &str) -> Result<Vec<i64>, Failure> {
        let group = self.names.group("external.metrics");
        let path = format!("/apis/{group}/v1beta1/namespaces/{namespace}/{metric}");
        let list = self.list(path, &[("labelSelector", selector)], "external metrics API").await?;
        list.iter().map(value).collect()
    }
}

/// The usage of pods. A pod with a container without a metric is left out.
fn pod_usage(
    namespace: &str,
    pods: &[Value],
    resource: &str,
    container: Option<&str>,
) -> Result<PodMetrics, Failure> {
    let mut metrics = HashMap::new();
    for pod in pods {
        let name = pod.text(&["metadata", "name"]);
        let mut containers: Vec<&Value> = pod.items(&["containers"]).iter().collect();
        if let Some(container) = container {
            containers.retain(|it| it.text(&["name"]) == container);
            if containers.is_empty() {
                let why = format!("container {container} not present in metrics for pod {namespace}/{name}");
                return Err(Failure::Other(why));
            }
        }
        let usage = containers.iter().map(|it| it.at(&["usage", resource]));
        let Some(usage) = usage.collect::<Option<Vec<_>>>() else { continue };
        let mut value = 0i64;
        for quantity in usage {
            value = value.saturating_add(milli(quantity)?);
        }
        let window = schema::time::parse_duration(pod.text(&["window"])).ok();
        let window = window.and_then(|it| u64::try_from(it).ok()).map_or(WINDOW, Duration::from_nanos);
        metrics.insert(name.to_owned(), PodMetric { value, at: timestamp(pod)?, window });
    }
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn the_usage_of_containers_is_summed() {
        let pods: List<Value> = object(json!({"items": [
            {"metadata": {"name": "a"}, "timestamp": "2023-01-01T00:00:00Z", "window": "30s", "containers": [
                {"name": "c", "usage": {"cpu": "250m", "memory": "1Ki"}}, {"name": "d", "usage": {"cpu": "1"}}
            ]},
            {"metadata": {"name": "b"}, "timestamp": "2023-01-01T00:00:00Z", "containers": [
                {"name": "c", "usage": {"memory": "1Ki"}}
            ]}
        ]}));
        let all = pod_usage("ns", &pods.items, "cpu", None).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!((all["a"].value, all["a"].window), (1250, Duration::from_secs(30)));
        let one = pod_usage("ns", &pods.items, "memory", Some("c")).unwrap();
        assert_eq!((one["a"].value, one["b"].value, one["b"].window), (1_024_000, 1_024_000, WINDOW));
        let why = pod_usage("ns", &pods.items, "cpu", Some("d")).unwrap_err().to_string();
        assert_eq!(why, "container d not present in metrics for pod ns/b");
    }

    #[test]
    fn queries_are_escaped() {
        let mut out = String::new();
        escape("a=b,c in (d)", &mut out);
        assert_eq!(out, "a%3Db%2Cc%20in%20%28d%29");
    }
}
