//! What each metric of an autoscaler asks for.

use super::api::milli;
use super::metrics::Metrics;
use super::options::Options;
use super::replicas::{self, Proposal, Target};
use client::Failure;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource,
    PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::chrono::{DateTime, Utc};
use kube::core::Selector;
use std::sync::Arc;

/// The state of the scale target.
pub(super) struct ScaleTarget<'a> {
    pub namespace: &'a str,
    /// How many replicas there should be, and how many there are.
    pub current: i32,
    pub running: i32,
    /// Which pods are its replicas, and these.
    pub selector: &'a str,
    pub pods: &'a [Arc<Pod>],
    pub options: &'a Options,
    pub now: DateTime<Utc>,
}

/// What a metric asks for, what it is called, and what the status says about it.
pub(super) struct Answer {
    pub replicas: i32,
    pub name: String,
    pub status: MetricStatus,
}

/// Why a metric asks for nothing.
pub(super) struct Unknown {
    pub reason: &'static str,
    pub message: String,
}

/// What a metric asks for.
pub(super) async fn ask(
    metrics: &impl Metrics,
    scaled: &ScaleTarget<'_>,
    spec: &MetricSpec,
) -> Result<Answer, Unknown> {
    let refused = |reason: &'static str| move |message: String| Unknown { reason, message };
    let bare = MetricStatus { type_: spec.type_.clone(), ..MetricStatus::default() };
    match (spec.type_.as_str(), spec) {
        ("Resource", MetricSpec { resource: Some(it), .. }) => {
            let (name, found) = resource(metrics, scaled, &it.name, None, &it.target)
                .await
                .map_err(refused("FailedGetResourceMetric"))?;
            let status = ResourceMetricStatus { name: it.name.clone(), current: averaged(&found) };
            let status = MetricStatus { resource: Some(status), ..bare };
            Ok(Answer { replicas: found.replicas, name, status })
        }
        ("ContainerResource", MetricSpec { container_resource: Some(it), .. }) => {
            let (name, found) = resource(metrics, scaled, &it.name, Some(&it.container), &it.target)
                .await
                .map_err(refused("FailedGetContainerResourceMetric"))?;
            let status = ContainerResourceMetricStatus {
                name: it.name.clone(),
                container: it.container.clone(),
                current: averaged(&found),
            };
            let status = MetricStatus { container_resource: Some(status), ..bare };
            Ok(Answer { replicas: found.replicas, name, status })
        }
        ("Pods", MetricSpec { pods: Some(it), .. }) => {
            let found = pods(metrics, scaled, it).await.map_err(refused("FailedGetPodsMetric"))?;
            let status = PodsMetricStatus { metric: it.metric.clone(), current: averaged(&found) };
            let status = MetricStatus { pods: Some(status), ..bare };
            Ok(Answer { replicas: found.replicas, name: format!("pods metric {}", it.metric.name), status })
        }
        ("Object", MetricSpec { object: Some(it), .. }) => {
            let found = object(metrics, scaled, it).await.map_err(refused("FailedGetObjectMetric"))?;
            let per_pod = it.target.type_ != "Value";
            let status = ObjectMetricStatus {
                metric: it.metric.clone(),
                described_object: it.described_object.clone(),
                current: if per_pod { averaged(&found) } else { summed(&found) },
            };
            let name = match per_pod {
                true => external_name(&it.metric),
                false => format!("{} metric {}", it.described_object.kind, it.metric.name),
            };
            let status = MetricStatus { object: Some(status), ..bare };
            Ok(Answer { replicas: found.replicas, name, status })
        }
        ("External", MetricSpec { external: Some(it), .. }) => {
            let found = external(metrics, scaled, it).await.map_err(refused("FailedGetExternalMetric"))?;
            let per_pod = it.target.average_value.is_some();
            let status = ExternalMetricStatus {
                metric: it.metric.clone(),
                current: if per_pod { averaged(&found) } else { summed(&found) },
            };
            let status = MetricStatus { external: Some(status), ..bare };
            Ok(Answer { replicas: found.replicas, name: external_name(&it.metric), status })
        }
        (kind, _) => {
            let message = format!("unknown metric source type {kind:?}");
            Err(refused("InvalidMetricSourceType")(message))
        }
    }
}

fn quantity(milli: i64) -> Quantity {
    Quantity(schema::quantity::Quantity::from_milli(milli).to_string())
}

fn averaged(found: &Proposal) -> MetricValueStatus {
    MetricValueStatus {
        average_value: Some(quantity(found.value)),
        average_utilization: found.utilization,
        value: None,
    }
}

fn summed(found: &Proposal) -> MetricValueStatus {
    MetricValueStatus { value: Some(quantity(found.value)), ..MetricValueStatus::default() }
}

/// A selector as it stands in requests; one that cannot be understood selects nothing that could be asked for.
fn text(selector: Option<&LabelSelector>) -> Result<String, String> {
    let Some(selector) = selector else { return Ok(String::new()) };
    let parsed: Result<Selector, _> = selector.clone().try_into();
    parsed.map(|it| it.to_string()).map_err(|why| why.to_string())
}

fn wanted(target: &Option<Quantity>) -> Result<Option<i64>, String> {
    target.as_ref().map(milli).transpose().map_err(|why| why.message())
}

async fn resource(
    metrics: &impl Metrics,
    scaled: &ScaleTarget<'_>,
    name: &str,
    container: Option<&str>,
    target: &MetricTarget,
) -> Result<(String, Proposal), String> {
    let whole = |why: String| format!("failed to get {name} resource metric value: {why}");
    let measured = async {
        let found = metrics.resource(scaled.namespace, scaled.selector, name, container).await;
        found.map_err(|why| format!("unable to get metrics for resource {name}: {}", why.message()))
    };
    let of = |target: &Target, found| {
        let is_cpu = name == "cpu";
        replicas::of_pods(scaled.current, target, scaled.pods, found, is_cpu, scaled.options, scaled.now)
    };
    if let Some(average) = wanted(&target.average_value)? {
        let found = measured.await.and_then(|found| of(&Target::Average(average), found));
        let found = found.map_err(|why| whole(format!("failed to get {name} usage: {why}")))?;
        return Ok((format!("{name} resource"), found));
    }
    let Some(percent) = target.average_utilization else {
        const NEITHER: &str = "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set";
        return Err(NEITHER.to_owned());
    };
    let found = match measured.await {
        Ok(found) => replicas::requests(scaled.pods, name, container)
            .and_then(|requests| of(&Target::Utilization { percent, requests }, found)),
        Err(why) => Err(why),
    };
    let found = found.map_err(|why| whole(format!("failed to get {name} utilization: {why}")))?;
    Ok((format!("{name} resource utilization (percentage of request)"), found))
}

async fn pods(
    metrics: &impl Metrics,
    scaled: &ScaleTarget<'_>,
    it: &PodsMetricSource,
) -> Result<Proposal, String> {
    let whole = |why: String| format!("failed to get pods metric value: {why}");
    let selector = text(it.metric.selector.as_ref())?;
    let name = &it.metric.name;
    let average = wanted(&it.target.average_value)?.unwrap_or(0);
    let found = metrics.pods(scaled.namespace, scaled.selector, name, &selector).await;
    let found = found.map_err(|why| whole(format!("unable to get metric {name}: {}", why.message())))?;
    let target = Target::Average(average);
    replicas::of_pods(scaled.current, &target, scaled.pods, found, false, scaled.options, scaled.now)
        .map_err(whole)
}

async fn object(
    metrics: &impl Metrics,
    scaled: &ScaleTarget<'_>,
    it: &ObjectMetricSource,
) -> Result<Proposal, String> {
    let selector = text(it.metric.selector.as_ref())?;
    let (name, object) = (&it.metric.name, &it.described_object);
    let value = || async {
        let found = metrics.object(scaled.namespace, object, name, &selector).await;
        found.map_err(|why: Failure| {
            let what = format!("{} on {} {}", object.kind, scaled.namespace, object.name);
            format!(
                "failed to get object metric value: unable to get metric {name}: {what}/{}",
                why.message()
            )
        })
    };
    match (it.target.type_.as_str(), wanted(&it.target.value)?, wanted(&it.target.average_value)?) {
        ("Value", Some(wanted), _) => {
            replicas::of_value(scaled.current, value().await?, wanted, scaled.pods, scaled.options)
        }
        ("AverageValue", _, Some(wanted)) => {
            Ok(replicas::of_value_per_pod(scaled.running, value().await?, wanted, scaled.options))
        }
        _ => Err("invalid object metric source: neither a value target nor an average value target was set"
            .to_owned()),
    }
}

async fn external(
    metrics: &impl Metrics,
    scaled: &ScaleTarget<'_>,
    it: &ExternalMetricSource,
) -> Result<Proposal, String> {
    let selector = text(it.metric.selector.as_ref())?;
    let name = &it.metric.name;
    let value = || async {
        let found = metrics.external(scaled.namespace, name, &selector).await;
        let found = found.map_err(|why| {
            let (namespace, what) = (scaled.namespace, shown(it.metric.selector.as_ref()));
            format!(
                "failed to get {name} external metric value: unable to get external metric {namespace}/{name}/{what}: {}",
                why.message()
            )
        })?;
        Ok::<_, String>(found.into_iter().fold(0i64, i64::saturating_add))
    };
    if let Some(wanted) = wanted(&it.target.average_value)? {
        return Ok(replicas::of_value_per_pod(scaled.running, value().await?, wanted, scaled.options));
    }
    match wanted(&it.target.value)? {
        Some(wanted) => {
            replicas::of_value(scaled.current, value().await?, wanted, scaled.pods, scaled.options)
        }
        None => {
            Err("invalid external metric source: neither a value target nor an average value target was set"
                .to_owned())
        }
    }
}

fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, shown(metric.selector.as_ref()))
}

/// A selector as events have always shown it.
fn shown(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels: String =
        selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
    let rules: String = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|it| {
            let values = it.values.clone().unwrap_or_default().join(" ");
            let (key, operator) = (&it.key, &it.operator);
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{rules}}},}}"
    )
}
