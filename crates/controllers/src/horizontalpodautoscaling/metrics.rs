//! What is measured: values of pods, of other objects, and of things outside the cluster.
//!
//! Values are in thousandths, whatever their unit.

use client::Failure;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::chrono::{DateTime, Utc};
use std::collections::HashMap;
use std::time::Duration;

/// A value of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodMetric {
    pub value: i64,
    /// When it was measured, and over how long.
    pub at: DateTime<Utc>,
    pub window: Duration,
}

/// Values of pods by their names.
pub(super) type PodMetrics = HashMap<String, PodMetric>;

/// A source of metrics. Selectors are texts, as they stand in requests.
pub(super) trait Metrics: Send + Sync + 'static {
    /// What pods use of a resource; of one container where it is named, and of all together otherwise.
    fn resource(
        &self,
        namespace: &str,
        pods: &str,
        resource: &str,
        container: Option<&str>,
    ) -> impl Future<Output = Result<PodMetrics, Failure>> + Send;

    /// A metric that each of some pods has.
    fn pods(
        &self,
        namespace: &str,
        pods: &str,
        metric: &str,
        selector: &str,
    ) -> impl Future<Output = Result<PodMetrics, Failure>> + Send;

    /// A metric of one object.
    fn object(
        &self,
        namespace: &str,
        object: &CrossVersionObjectReference,
        metric: &str,
        selector: &str,
    ) -> impl Future<Output = Result<i64, Failure>> + Send;

    /// The values of a metric that belongs to no object here.
    fn external(
        &self,
        namespace: &str,
        metric: &str,
        selector: &str,
    ) -> impl Future<Output = Result<Vec<i64>, Failure>> + Send;
}
