//! Evaluates the metrics of an autoscaler: the replicas that each calls for, and its status.

use super::metrics::Metrics;
use super::options::Options;
use super::replicas::{self, Proposal, Target};
use api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource,
    PodsMetricStatus, ResourceMetricStatus,
};
use api::core::v1::Pod;
use api::meta::v1::LabelSelector;
use api::{Quantity, Time};
use apimachinery::labels::Selector;
use client::Failure;
use std::sync::Arc;

/// The state of the scale target.
pub(super) struct ScaleTarget<'a> {
    pub namespace: &'a str,
    /// The replicas in the spec of the scale.
    pub current: i32,
    /// The replicas in the status of the scale.
    pub running: i32,
    pub selector: &'a str,
    /// The pods that the selector matches.
    pub pods: &'a [Arc<Pod>],
    pub options: &'a Options,
    pub now: Time,
}

/// The result of a metric.
pub(super) struct Evaluation {
    pub replicas: i32,
    /// The name of the metric in events and conditions.
    pub name: String,
    pub status: MetricStatus,
}

/// The error of a metric that has no result.
pub(super) struct MetricError {
    pub reason: &'static str,
    pub message: String,
}

/// Evaluates a metric.
pub(super) async fn evaluate(
    metrics: &impl Metrics,
    scaled: &ScaleTarget<'_>,
    spec: &MetricSpec,
) -> Result<Evaluation, MetricError> {
    let failed = |reason: &'static str| move |message: String| MetricError { reason, message };
    let bare = MetricStatus { type_: spec.type_.clone(), ..MetricStatus::default() };
    match (&*spec.type_, spec) {
        ("Resource", MetricSpec { resource: Some(it), .. }) => {
            let (name, found) = resource(metrics, scaled, &it.name, None, &it.target)
                .await
                .map_err(failed("FailedGetResourceMetric"))?;
            let status = ResourceMetricStatus {
                name: it.name.clone(),
                current: averaged(&found),
                ..ResourceMetricStatus::default()
            };
            let status = MetricStatus { resource: Some(Box::new(status)), ..bare };
            Ok(Evaluation { replicas: found.replicas, name, status })
        }
        ("ContainerResource", MetricSpec { container_resource: Some(it), .. }) => {
            let (name, found) = resource(metrics, scaled, &it.name, Some(&it.container), &it.target)
                .await
                .map_err(failed("FailedGetContainerResourceMetric"))?;
            let status = ContainerResourceMetricStatus {
                name: it.name.clone(),
                container: it.container.clone(),
                current: averaged(&found),
                ..ContainerResourceMetricStatus::default()
            };
            let status = MetricStatus { container_resource: Some(Box::new(status)), ..bare };
            Ok(Evaluation { replicas: found.replicas, name, status })
        }
        ("Pods", MetricSpec { pods: Some(it), .. }) => {
            let proposal = pods(metrics, scaled, it).await.map_err(failed("FailedGetPodsMetric"))?;
            let status = PodsMetricStatus {
                metric: it.metric.clone(),
                current: averaged(&proposal),
                ..PodsMetricStatus::default()
            };
            let status = MetricStatus { pods: Some(Box::new(status)), ..bare };
            Ok(Evaluation {
                replicas: proposal.replicas,
                name: format!("pods metric {}", it.metric.name),
                status,
            })
        }
        ("Object", MetricSpec { object: Some(it), .. }) => {
            let proposal = object(metrics, scaled, it).await.map_err(failed("FailedGetObjectMetric"))?;
            let per_pod = it.target.type_ != "Value";
            let status = ObjectMetricStatus {
                metric: it.metric.clone(),
                described_object: it.described_object.clone(),
                current: if per_pod { averaged(&proposal) } else { summed(&proposal) },
                ..ObjectMetricStatus::default()
            };
            let name = match per_pod {
                true => external_name(&it.metric),
                false => format!("{} metric {}", it.described_object.kind, it.metric.name),
            };
            let status = MetricStatus { object: Some(Box::new(status)), ..bare };
            Ok(Evaluation { replicas: proposal.replicas, name, status })
        }
        ("External", MetricSpec { external: Some(it), .. }) => {
            let proposal = external(metrics, scaled, it).await.map_err(failed("FailedGetExternalMetric"))?;
            let per_pod = it.target.average_value.is_some();
            let status = ExternalMetricStatus {
                metric: it.metric.clone(),
                current: if per_pod { averaged(&proposal) } else { summed(&proposal) },
                ..ExternalMetricStatus::default()
            };
            let status = MetricStatus { external: Some(Box::new(status)), ..bare };
            Ok(Evaluation { replicas: proposal.replicas, name: external_name(&it.metric), status })
        }
        (kind, _) => {
            let message = format!("unknown metric source type {kind:?}");
            Err(failed("InvalidMetricSourceType")(message))
        }
    }
}

fn averaged(found: &Proposal) -> MetricValueStatus {
    MetricValueStatus {
        average_value: Some(Quantity::from_milli(found.value)),
        average_utilization: found.utilization,
        ..MetricValueStatus::default()
    }
}

fn summed(found: &Proposal) -> MetricValueStatus {
    MetricValueStatus { value: Some(Quantity::from_milli(found.value)), ..MetricValueStatus::default() }
}

/// The selector of a metric in the syntax of requests.
fn selector_text(metric: &MetricIdentifier) -> Result<String, String> {
    let Some(selector) = &metric.selector else { return Ok(String::new()) };
    Selector::try_from(&**selector).map(|it| it.to_string()).map_err(|why| why.to_string())
}

/// The value of a target in thousandths.
fn milli(target: &Option<Quantity>) -> Option<i64> {
    target.as_ref().map(Quantity::milli)
}

async fn resource(
    metrics: &impl Metrics,
    scaled: &ScaleTarget<'_>,
    name: &str,
    container: Option<&str>,
    target: &MetricTarget,
) -> Result<(String, Proposal), String> {
    let with_context = |why: String| format!("failed to get {name} resource metric value: {why}");
    let measured = async {
        let values = metrics.resource(scaled.namespace, scaled.selector, name, container).await;
        values.map_err(|why| format!("unable to get metrics for resource {name}: {}", why.message()))
    };
    let propose = |target: &Target, found| {
        let is_cpu = name == "cpu";
        replicas::of_pods(scaled.current, target, scaled.pods, found, is_cpu, scaled.options, scaled.now)
    };
    if let Some(average) = milli(&target.average_value) {
        let proposal = measured.await.and_then(|proposal| propose(&Target::Average(average), proposal));
        let proposal = proposal.map_err(|why| with_context(format!("failed to get {name} usage: {why}")))?;
        return Ok((format!("{name} resource"), proposal));
    }
    let Some(percent) = target.average_utilization else {
        const NEITHER: &str = "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set";
        return Err(NEITHER.to_owned());
    };
    let proposal = match measured.await {
        Ok(proposal) => replicas::requests(scaled.pods, name, container)
            .and_then(|requests| propose(&Target::Utilization { percent, requests }, proposal)),
        Err(why) => Err(why),
    };
    let proposal =
        proposal.map_err(|why| with_context(format!("failed to get {name} utilization: {why}")))?;
    Ok((format!("{name} resource utilization (percentage of request)"), proposal))
}

async fn pods(
    metrics: &impl Metrics,
    scaled: &ScaleTarget<'_>,
    it: &PodsMetricSource,
) -> Result<Proposal, String> {
    let with_context = |why: String| format!("failed to get pods metric value: {why}");
    let selector = selector_text(&it.metric)?;
    let name = &it.metric.name;
    let average = milli(&it.target.average_value).unwrap_or(0);
    let values = metrics.pods(scaled.namespace, scaled.selector, name, &selector).await;
    let values =
        values.map_err(|why| with_context(format!("unable to get metric {name}: {}", why.message())))?;
    let target = Target::Average(average);
    replicas::of_pods(scaled.current, &target, scaled.pods, values, false, scaled.options, scaled.now)
        .map_err(with_context)
}

async fn object(
    metrics: &impl Metrics,
    scaled: &ScaleTarget<'_>,
    it: &ObjectMetricSource,
) -> Result<Proposal, String> {
    let selector = selector_text(&it.metric)?;
    let (name, object) = (&it.metric.name, &it.described_object);
    let value = || async {
        let value = metrics.object(scaled.namespace, object, name, &selector).await;
        value.map_err(|why: Failure| {
            let what = format!("{} on {} {}", object.kind, scaled.namespace, object.name);
            format!(
                "failed to get object metric value: unable to get metric {name}: {what}/{}",
                why.message()
            )
        })
    };
    match (&*it.target.type_, milli(&it.target.value), milli(&it.target.average_value)) {
        ("Value", Some(target), _) => {
            replicas::of_value(scaled.current, value().await?, target, scaled.pods, scaled.options)
        }
        ("AverageValue", _, Some(target)) => {
            Ok(replicas::of_value_per_pod(scaled.running, value().await?, target, scaled.options))
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
    let selector = selector_text(&it.metric)?;
    let name = &it.metric.name;
    let value = || async {
        let values = metrics.external(scaled.namespace, name, &selector).await;
        let values = values.map_err(|why| {
            let (namespace, what) = (scaled.namespace, go_text(it.metric.selector.as_deref()));
            format!(
                "failed to get {name} external metric value: unable to get external metric {namespace}/{name}/{what}: {}",
                why.message()
            )
        })?;
        Ok::<_, String>(values.into_iter().fold(0i64, i64::saturating_add))
    };
    if let Some(target) = milli(&it.target.average_value) {
        return Ok(replicas::of_value_per_pod(scaled.running, value().await?, target, scaled.options));
    }
    match milli(&it.target.value) {
        Some(target) => {
            replicas::of_value(scaled.current, value().await?, target, scaled.pods, scaled.options)
        }
        None => {
            Err("invalid external metric source: neither a value target nor an average value target was set"
                .to_owned())
        }
    }
}

fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, go_text(metric.selector.as_deref()))
}

/// A selector in Go's syntax, as events and conditions contain it.
fn go_text(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels: String =
        selector.match_labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let rules: String = selector
        .match_expressions
        .iter()
        .map(|it| {
            let values = it.values.join(" ");
            let (key, operator) = (&it.key, &it.operator);
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{rules}}},}}"
    )
}
