//! How many replicas a metric asks for: pure functions over pods and what was measured of them.
//!
//! The ratio of what is used to what is wanted says it. Where that is close to one nothing changes. Pods of which
//! nothing was measured, and those that are not ready yet, are taken for what makes the change smaller; they never turn
//! it round.

use super::metrics::{PodMetric, PodMetrics};
use super::options::Options;
use crate::pods::state;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::chrono::{DateTime, TimeDelta, Utc};
use kube::ResourceExt;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

const NO_PODS: &str = "no pods returned by selector while calculating replica count";
const NO_METRICS: &str = "did not receive metrics for any ready pods";

/// What a metric asks for, and what was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proposal {
    pub replicas: i32,
    /// In percent of what was requested, where that is what counts.
    pub utilization: Option<i32>,
    /// In thousandths: of one pod in the middle, or all in all.
    pub value: i64,
}

/// Pods by what is known of them, by name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Groups {
    ready: usize,
    unready: HashSet<String>,
    missing: HashSet<String>,
    ignored: HashSet<String>,
}

fn group(
    pods: &[Arc<Pod>],
    metrics: &PodMetrics,
    is_cpu: bool,
    options: &Options,
    now: DateTime<Utc>,
) -> Groups {
    let mut groups = Groups::default();
    for pod in pods {
        let name = pod.name_any();
        let phase = state::phase(pod);
        if pod.metadata.deletion_timestamp.is_some() || phase == "Failed" {
            groups.ignored.insert(name);
        } else if phase == "Pending" {
            groups.unready.insert(name);
        } else if let Some(metric) = metrics.get(&name) {
            if is_cpu && is_starting(pod, metric, options, now) {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.insert(name);
        }
    }
    groups
}

/// Whether what a pod uses of the processor says nothing yet, since pods use more of it while they start.
fn is_starting(pod: &Pod, metric: &PodMetric, options: &Options, now: DateTime<Utc>) -> bool {
    let started = pod.status.as_ref().and_then(|it| it.start_time.as_ref());
    let (Some(ready), Some(started)) = (state::condition(pod, "Ready"), started) else { return true };
    let changed = ready.last_transition_time.as_ref().map_or(DateTime::UNIX_EPOCH, |it| it.0);
    let is_unready = ready.status == "False";
    if later(started.0, options.cpu_initialization_period) > now {
        // it counts when it was measured over a whole window since
        is_unready || metric.at < later(changed, metric.window)
    } else {
        // one that has never been ready, rather than not any more
        is_unready && later(started.0, options.initial_readiness_delay) > changed
    }
}

/// So much later, or as late as can be said.
fn later(time: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(by)
        .ok()
        .and_then(|by| time.checked_add_signed(by))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// What is wanted of each pod.
pub(super) enum Target {
    /// So many percent of what it requests: by pod, in thousandths.
    Utilization { percent: i32, requests: HashMap<String, i64> },
    /// So many thousandths.
    Average(i64),
}

/// What is used, in relation to what is wanted.
struct Use {
    ratio: f64,
    utilization: Option<i32>,
    average: i64,
}

impl Target {
    fn measure(&self, metrics: &PodMetrics) -> Result<Use, String> {
        match self {
            Target::Average(wanted) => {
                let total = metrics.values().fold(0i64, |sum, it| sum.saturating_add(it.value));
                let average = total / i64::try_from(metrics.len()).unwrap_or(1).max(1);
                Ok(Use { ratio: average as f64 / *wanted as f64, utilization: None, average })
            }
            Target::Utilization { percent, requests } => {
                let (mut used, mut requested, mut count) = (0i64, 0i64, 0i64);
                for (name, metric) in metrics {
                    // what is measured of pods that are not here does not count
                    if let Some(request) = requests.get(name) {
                        used = used.saturating_add(metric.value);
                        requested = requested.saturating_add(*request);
                        count += 1;
                    }
                }
                if requested == 0 {
                    return Err("no metrics returned matched known pods".to_owned());
                }
                let utilization =
                    i32::try_from(i128::from(used) * 100 / i128::from(requested)).unwrap_or(i32::MAX);
                let ratio = f64::from(utilization) / f64::from(*percent);
                Ok(Use { ratio, utilization: Some(utilization), average: used / count })
            }
        }
    }

    /// What a pod of which nothing was measured is taken to use when that could only be too little.
    fn full(&self, name: &str) -> i64 {
        match self {
            Target::Average(wanted) => *wanted,
            Target::Utilization { percent, requests } => {
                let request = requests.get(name).copied().unwrap_or(0);
                let full = i128::from(request) * i128::from((*percent).max(100)) / 100;
                i64::try_from(full).unwrap_or(i64::MAX)
            }
        }
    }
}

/// The replicas that a metric of pods asks for.
pub(super) fn of_pods(
    current: i32,
    target: &Target,
    pods: &[Arc<Pod>],
    mut metrics: PodMetrics,
    is_cpu: bool,
    options: &Options,
    now: DateTime<Utc>,
) -> Result<Proposal, String> {
    if pods.is_empty() {
        return Err(NO_PODS.to_owned());
    }
    let groups = group(pods, &metrics, is_cpu, options, now);
    metrics.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
    if metrics.is_empty() {
        return Err(NO_METRICS.to_owned());
    }
    let used = target.measure(&metrics)?;
    let proposal = |replicas| Proposal { replicas, utilization: used.utilization, value: used.average };
    let up_with_unready = !groups.unready.is_empty() && used.ratio > 1.0;
    if !up_with_unready && groups.missing.is_empty() {
        let close = is_close(used.ratio, options);
        return Ok(proposal(if close { current } else { ceil(used.ratio * groups.ready as f64) }));
    }
    let mut assume = |name: &String, value: i64| {
        let at = DateTime::UNIX_EPOCH;
        metrics.insert(name.clone(), PodMetric { value, at, window: Duration::ZERO });
    };
    for name in &groups.missing {
        if used.ratio < 1.0 {
            assume(name, target.full(name));
        } else if used.ratio > 1.0 {
            assume(name, 0);
        }
    }
    if up_with_unready {
        groups.unready.iter().for_each(|name| assume(name, 0));
    }
    let again = target.measure(&metrics)?.ratio;
    let turned = (used.ratio < 1.0 && again > 1.0) || (used.ratio > 1.0 && again < 1.0);
    let replicas = ceil(again * metrics.len() as f64);
    let against = (again < 1.0 && replicas > current) || (again > 1.0 && replicas < current);
    Ok(proposal(if is_close(again, options) || turned || against { current } else { replicas }))
}

/// The replicas that a value of something else asks for, which they share.
pub(super) fn of_value(
    current: i32,
    value: i64,
    wanted: i64,
    pods: &[Arc<Pod>],
    options: &Options,
) -> Result<Proposal, String> {
    let ratio = value as f64 / wanted as f64;
    let replicas = if current == 0 {
        ceil(ratio)
    } else if is_close(ratio, options) {
        current
    } else {
        if pods.is_empty() {
            return Err(NO_PODS.to_owned());
        }
        let ready = pods.iter().filter(|it| state::phase(it) == "Running" && state::is_ready(it)).count();
        ceil(ratio * ready as f64)
    };
    Ok(Proposal { replicas, utilization: None, value })
}

/// The same, where it is wanted for each replica. What was measured is told for each, too.
pub(super) fn of_value_per_pod(replicas: i32, value: i64, wanted: i64, options: &Options) -> Proposal {
    let ratio = value as f64 / (wanted as f64 * f64::from(replicas));
    let proposed = if is_close(ratio, options) { replicas } else { ceil(value as f64 / wanted as f64) };
    let each = (value as f64 / f64::from(replicas)).ceil();
    let each = if each.is_finite() { each as i64 } else { value };
    Proposal { replicas: proposed, utilization: None, value: each }
}

fn is_close(ratio: f64, options: &Options) -> bool {
    (1.0 - ratio).abs() <= options.tolerance
}

/// As a count of replicas; what makes no sense is none.
fn ceil(number: f64) -> i32 {
    // casts stay within the range
    number.ceil() as i32
}

/// What each pod requests of a resource, in thousandths.
pub(super) fn requests(
    pods: &[Arc<Pod>],
    resource: &str,
    container: Option<&str>,
) -> Result<HashMap<String, i64>, String> {
    let mut out = HashMap::new();
    for pod in pods {
        let mut sum = 0i64;
        let containers = pod.spec.iter().flat_map(|it| &it.containers);
        for it in containers.filter(|it| container.is_none_or(|wanted| wanted == it.name)) {
            let requests = it.resources.as_ref().and_then(|it| it.requests.as_ref());
            let request = requests.and_then(|it| it.get(resource)).and_then(|it| super::api::milli(it).ok());
            let request = request.ok_or_else(|| {
                format!("missing request for {resource} in container {} of Pod {}", it.name, pod.name_any())
            })?;
            sum = sum.saturating_add(request);
        }
        out.insert(pod.name_any(), sum);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
