//! The number of replicas that a metric calls for: pure functions over pods and their metrics.
//!
//! It follows from the ratio of usage to target. A ratio close to one changes nothing. Pods without metrics and pods that
//! are not ready yet count with the value that makes the change smaller; they never reverse it.

use super::metrics::{PodMetric, PodMetrics};
use super::options::Options;
use crate::pods::state;
use api::core::v1::Pod;
use api::{Resource, Time};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

const NO_PODS: &str = "no pods returned by selector while calculating replica count";
const NO_METRICS: &str = "did not receive metrics for any ready pods";

/// The replicas that a metric calls for, and the measured value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proposal {
    pub replicas: i32,
    /// In percent of the request, for targets of utilization.
    pub utilization: Option<i32>,
    /// In thousandths: the average of the pods, or the total.
    pub value: i64,
}

/// The names of pods by the state of their metrics.
#[derive(Debug, Default, PartialEq, Eq)]
struct Groups {
    ready: usize,
    unready: HashSet<String>,
    missing: HashSet<String>,
    ignored: HashSet<String>,
}

fn group(pods: &[Arc<Pod>], metrics: &PodMetrics, is_cpu: bool, options: &Options, now: Time) -> Groups {
    let mut groups = Groups::default();
    for pod in pods {
        let name = pod.name().to_owned();
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

/// Whether the CPU usage of a pod does not count yet, since pods use more while they start.
fn is_starting(pod: &Pod, metric: &PodMetric, options: &Options, now: Time) -> bool {
    let (Some(ready), Some(started)) = (state::condition(pod, "Ready"), pod.status.start_time) else {
        return true;
    };
    let changed = ready.last_transition_time.unwrap_or_default();
    let is_unready = ready.status == "False";
    if is_within(now, started, options.cpu_initialization_period) {
        // the metric counts if its whole window is later than the transition
        is_unready || is_within(metric.at, changed, metric.window)
    } else {
        // a pod that has never been ready, rather than one that became unready
        is_unready && is_within(changed, started, options.initial_readiness_delay)
    }
}

/// Whether a time is before the end of the period that begins with `since`.
fn is_within(time: Time, since: Time, period: Duration) -> bool {
    let elapsed = u64::try_from(time.0.saturating_sub(since.0)).ok();
    elapsed.is_none_or(|seconds| Duration::from_secs(seconds) < period)
}

/// The target of a metric of pods.
pub(super) enum Target {
    /// In percent of the requests, which are in thousandths by pod.
    Utilization { percent: i32, requests: HashMap<String, i64> },
    /// In thousandths.
    Average(i64),
}

/// The usage of pods, in relation to the target.
struct Usage {
    ratio: f64,
    utilization: Option<i32>,
    average: i64,
}

impl Target {
    fn measure(&self, metrics: &PodMetrics) -> Result<Usage, String> {
        match self {
            Target::Average(target) => {
                let total = metrics.values().fold(0i64, |sum, it| sum.saturating_add(it.value));
                let average = total / i64::try_from(metrics.len()).unwrap_or(1).max(1);
                Ok(Usage { ratio: average as f64 / *target as f64, utilization: None, average })
            }
            Target::Utilization { percent, requests } => {
                let (mut used, mut requested, mut count) = (0i64, 0i64, 0i64);
                for (name, metric) in metrics {
                    // metrics of unknown pods do not count
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
                Ok(Usage { ratio, utilization: Some(utilization), average: used / count })
            }
        }
    }

    /// The assumed usage of a pod without metrics when replicas are to be removed.
    fn full(&self, name: &str) -> i64 {
        match self {
            Target::Average(target) => *target,
            Target::Utilization { percent, requests } => {
                let request = requests.get(name).copied().unwrap_or(0);
                let full = i128::from(request) * i128::from((*percent).max(100)) / 100;
                i64::try_from(full).unwrap_or(i64::MAX)
            }
        }
    }
}

/// The replicas that a metric of pods calls for.
pub(super) fn of_pods(
    current: i32,
    target: &Target,
    pods: &[Arc<Pod>],
    mut metrics: PodMetrics,
    is_cpu: bool,
    options: &Options,
    now: Time,
) -> Result<Proposal, String> {
    if pods.is_empty() {
        return Err(NO_PODS.to_owned());
    }
    let groups = group(pods, &metrics, is_cpu, options, now);
    metrics.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
    if metrics.is_empty() {
        return Err(NO_METRICS.to_owned());
    }
    let usage = target.measure(&metrics)?;
    let proposal = |replicas| Proposal { replicas, utilization: usage.utilization, value: usage.average };
    let up_with_unready = !groups.unready.is_empty() && usage.ratio > 1.0;
    if !up_with_unready && groups.missing.is_empty() {
        let close = is_close(usage.ratio, options);
        return Ok(proposal(if close { current } else { ceil(usage.ratio * groups.ready as f64) }));
    }
    let mut assume = |name: &String, value: i64| {
        metrics.insert(name.clone(), PodMetric { value, at: Time::default(), window: Duration::ZERO });
    };
    for name in &groups.missing {
        if usage.ratio < 1.0 {
            assume(name, target.full(name));
        } else if usage.ratio > 1.0 {
            assume(name, 0);
        }
    }
    if up_with_unready {
        groups.unready.iter().for_each(|name| assume(name, 0));
    }
    let ratio = target.measure(&metrics)?.ratio;
    let is_reversed = (usage.ratio < 1.0 && ratio > 1.0) || (usage.ratio > 1.0 && ratio < 1.0);
    let replicas = ceil(ratio * metrics.len() as f64);
    let is_opposite = (ratio < 1.0 && replicas > current) || (ratio > 1.0 && replicas < current);
    Ok(proposal(if is_close(ratio, options) || is_reversed || is_opposite { current } else { replicas }))
}

/// The replicas that the total value of an object or external metric calls for.
pub(super) fn of_value(
    current: i32,
    value: i64,
    target: i64,
    pods: &[Arc<Pod>],
    options: &Options,
) -> Result<Proposal, String> {
    let ratio = value as f64 / target as f64;
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

/// The same for a target per replica; the measured value is per replica, too.
pub(super) fn of_value_per_pod(replicas: i32, value: i64, target: i64, options: &Options) -> Proposal {
    let ratio = value as f64 / (target as f64 * f64::from(replicas));
    let proposed = if is_close(ratio, options) { replicas } else { ceil(value as f64 / target as f64) };
    let each = (value as f64 / f64::from(replicas)).ceil();
    let each = if each.is_finite() { each as i64 } else { value };
    Proposal { replicas: proposed, utilization: None, value: each }
}

fn is_close(ratio: f64, options: &Options) -> bool {
    (1.0 - ratio).abs() <= options.tolerance
}

/// Rounds up to a number of replicas; NaN is zero.
fn ceil(number: f64) -> i32 {
    // the cast saturates
    number.ceil() as i32
}

/// The requests of a resource by pod, in thousandths.
pub(super) fn requests(
    pods: &[Arc<Pod>],
    resource: &str,
    container: Option<&str>,
) -> Result<HashMap<String, i64>, String> {
    let mut out = HashMap::new();
    for pod in pods {
        let mut sum = 0i64;
        let containers = pod.spec.containers.iter();
        for it in containers.filter(|it| container.is_none_or(|name| name == it.name)) {
            let request = it.resources.requests.get(resource).ok_or_else(|| {
                format!("missing request for {resource} in container {} of Pod {}", it.name, pod.name())
            })?;
            sum = sum.saturating_add(request.milli());
        }
        out.insert(pod.name().to_owned(), sum);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
