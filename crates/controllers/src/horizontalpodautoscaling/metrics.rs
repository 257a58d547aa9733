//! Sources of metrics: values of pods, of other objects, and from outside the cluster.
//!
//! Values are in thousandths of their unit.

use api::Time;
use api::autoscaling::v2::CrossVersionObjectReference;
use client::Failure;
use std::collections::HashMap;
use std::time::Duration;

/// A measured value of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodMetric {
    pub value: i64,
    /// When it was measured.
    pub at: Time,
    /// The length of time over which it was measured.
    pub window: Duration,
}

/// Metrics of pods by name.
pub(super) type PodMetrics = HashMap<String, PodMetric>;

/// A source of metrics. Selectors are in the syntax of requests.
pub(super) trait Metrics: Send + Sync + 'static {
    /// The usage of a resource by pods: by one container if it is named, otherwise by all together.
    fn resource(
        &self,
        namespace: &str,
        pods: &str,
        resource: &str,
        container: Option<&str>,
    ) -> impl Future<Output = Result<PodMetrics, Failure>> + Send;

    /// A custom metric of pods.
    fn pods(
        &self,
        namespace: &str,
        pods: &str,
        metric: &str,
        selector: &str,
    ) -> impl Future<Output = Result<PodMetrics, Failure>> + Send;

    /// A custom metric of one object.
    fn object(
        &self,
        namespace: &str,
        object: &CrossVersionObjectReference,
        metric: &str,
        selector: &str,
    ) -> impl Future<Output = Result<i64, Failure>> + Send;

    /// The values of an external metric, which belongs to no object of the cluster.
    fn external(
        &self,
        namespace: &str,
        metric: &str,
        selector: &str,
    ) -> impl Future<Output = Result<Vec<i64>, Failure>> + Send;
}
