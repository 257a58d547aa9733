//! Metrics from the metrics APIs, which other servers serve behind this one.

use super::metrics::{Metrics, PodMetric, PodMetrics};
use crate::scales::Scales;
use client::Failure;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, ObjectMeta, Time};
use kube::Client;
use names::Names;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Over how long custom metrics are measured where they do not say.
const WINDOW: Duration = Duration::from_secs(60);

pub(super) struct ApiMetrics {
    client: Client,
    names: Arc<Names>,
    scales: Scales,
}

#[derive(Deserialize)]
struct Items<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Deserialize)]
struct PodUse {
    metadata: ObjectMeta,
    timestamp: Time,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<ContainerUse>,
}

#[derive(Deserialize)]
struct ContainerUse {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, Quantity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMetric {
    described_object: ObjectName,
    timestamp: Time,
    window_seconds: Option<u64>,
    value: Quantity,
}

#[derive(Deserialize)]
struct ObjectName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ExternalMetric {
    value: Quantity,
}

impl ApiMetrics {
    pub fn new(client: Client, names: Arc<Names>) -> Self {
        ApiMetrics { scales: Scales::new(client.clone()), client, names }
    }

    /// Asks for a path with selectors, as far as they are not empty.
    async fn get<T: DeserializeOwned>(
        &self,
        mut path: String,
        selectors: &[(&str, &str)],
    ) -> Result<T, Failure> {
        let mut sign = '?';
        for (name, text) in selectors.iter().filter(|(_, text)| !text.is_empty()) {
            path.extend([sign]);
            path.push_str(name);
            path.push('=');
            escape(text, &mut path);
            sign = '&';
        }
        let request = http::Request::get(path).body(Vec::new());
        Ok(self.client.request(request.map_err(kube::Error::HttpError)?).await?)
    }

    /// Where custom metrics are: servers of them are of several versions.
    async fn custom(&self) -> Result<String, Failure> {
        let group: APIGroup = self.get(format!("/apis/{}", self.names.group("custom.metrics")), &[]).await?;
        let version = group.preferred_version.or_else(|| group.versions.into_iter().next());
        let version = version.ok_or_else(|| none("custom metrics API"))?;
        Ok(format!("/apis/{}", version.group_version))
    }
}

fn none(what: &str) -> Failure {
    Failure::Other(format!("no metrics returned from {what}"))
}

/// Percent-encodes what a query may not hold.
fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// A quantity in thousandths.
pub(super) fn milli(quantity: &Quantity) -> Result<i64, Failure> {
    let parsed = quantity.0.parse::<schema::quantity::Quantity>();
    parsed.map(|it| it.milli()).map_err(|why| Failure::Other(format!("{:?}: {why}", quantity.0)))
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
        let found: Items<PodUse> = self.get(path, &[("labelSelector", pods)]).await?;
        if found.items.is_empty() {
            return Err(none("resource metrics API"));
        }
        used(namespace, &found.items, resource, container)
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
        let found: Items<ObjectMetric> = self.get(path, &selectors).await?;
        if found.items.is_empty() {
            return Err(none("custom metrics API"));
        }
        let of = |it: &ObjectMetric| {
            let window = it.window_seconds.map_or(WINDOW, Duration::from_secs);
            Ok((
                it.described_object.name.clone(),
                PodMetric { value: milli(&it.value)?, at: it.timestamp.0, window },
            ))
        };
        found.items.iter().map(of).collect()
    }

    async fn object(
        &self,
        namespace: &str,
        object: &CrossVersionObjectReference,
        metric: &str,
        selector: &str,
    ) -> Result<i64, Failure> {
        let base = self.custom().await?;
        let version = object.api_version.as_deref().unwrap_or("v1");
        let path = if object.kind == "Namespace" && version == "v1" {
            format!("{base}/namespaces/{namespace}/metrics/{metric}")
        } else {
            let resource = self.scales.resource(version, &object.kind).await?;
            let dot = if resource.group.is_empty() { "" } else { "." };
            let plural = format!("{}{dot}{}", resource.plural, resource.group);
            format!("{base}/namespaces/{namespace}/{plural}/{}/{metric}", object.name)
        };
        let found: Items<ObjectMetric> = self.get(path, &[("metricLabelSelector", selector)]).await?;
        milli(&found.items.first().ok_or_else(|| none("custom metrics API"))?.value)
    }

    async fn external(&self, namespace: &str, metric: &str, selector: &str) -> Result<Vec<i64>, Failure> {
        let group = self.names.group("external.metrics");
        let path = format!("/apis/{group}/v1beta1/namespaces/{namespace}/{metric}");
        let found: Items<ExternalMetric> = self.get(path, &[("labelSelector", selector)]).await?;
        if found.items.is_empty() {
            return Err(none("external metrics API"));
        }
        found.items.iter().map(|it| milli(&it.value)).collect()
    }
}

/// What pods use. A pod with a container of which nothing is known is left out.
fn used(
    namespace: &str,
    pods: &[PodUse],
    resource: &str,
    container: Option<&str>,
) -> Result<PodMetrics, Failure> {
    let mut metrics = HashMap::new();
    for pod in pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let mut containers: Vec<&ContainerUse> = pod.containers.iter().collect();
        if let Some(wanted) = container {
            containers.retain(|it| it.name == wanted);
            if containers.is_empty() {
                let why = format!("container {wanted} not present in metrics for pod {namespace}/{name}");
                return Err(Failure::Other(why));
            }
        }
        let Some(used) = containers.iter().map(|it| it.usage.get(resource)).collect::<Option<Vec<_>>>()
        else {
            continue;
        };
        let mut value = 0i64;
        for quantity in used {
            value = value.saturating_add(milli(quantity)?);
        }
        let window = schema::time::parse_duration(&pod.window).ok().and_then(|it| u64::try_from(it).ok());
        let window = window.map_or(WINDOW, Duration::from_nanos);
        metrics.insert(name, PodMetric { value, at: pod.timestamp.0, window });
    }
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_pods_use_is_added_up() {
        let pods: Items<PodUse> = serde_json::from_value(json!({"items": [
            {"metadata": {"name": "a"}, "timestamp": "2023-01-01T00:00:00Z", "window": "30s", "containers": [
                {"name": "c", "usage": {"cpu": "250m", "memory": "1Ki"}}, {"name": "d", "usage": {"cpu": "1"}}
            ]},
            {"metadata": {"name": "b"}, "timestamp": "2023-01-01T00:00:00Z", "containers": [
                {"name": "c", "usage": {"memory": "1Ki"}}
            ]}
        ]}))
        .unwrap();
        let all = used("ns", &pods.items, "cpu", None).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!((all["a"].value, all["a"].window), (1250, Duration::from_secs(30)));
        let one = used("ns", &pods.items, "memory", Some("c")).unwrap();
        assert_eq!((one["a"].value, one["b"].value, one["b"].window), (1_024_000, 1_024_000, WINDOW));
        let why = used("ns", &pods.items, "cpu", Some("d")).unwrap_err().to_string();
        assert_eq!(why, "container d not present in metrics for pod ns/b");
    }

    #[test]
    fn queries_are_escaped() {
        let mut out = String::new();
        escape("a=b,c in (d)", &mut out);
        assert_eq!(out, "a%3Db%2Cc%20in%20%28d%29");
    }
}
