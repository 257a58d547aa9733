//! The horizontal pod autoscaler controller: sets the scale of its targets from metrics.
//!
//! ```text
//! scale of the target ─► metrics (sources.rs, replicas.rs) ─► limits (limits.rs) ─► scale, status
//! ```
//!
//! Always true: a missing metric never makes a target smaller; of several metrics the one with the most replicas counts; a
//! target with zero replicas is not scaled, since that disables an autoscaler.

mod limits;
mod metrics;
mod metrics_api;
mod options;
mod replicas;
mod sources;
mod status;

pub use options::Options;

use self::metrics::Metrics;
use crate::Context;
use crate::scales::{Lookup, Scales, Target};
use api::autoscaling::v1::Scale;
use api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricStatus};
use api::core::v1::Pod;
use apimachinery::labels::Selector;
use client::events::Note;
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, retry_on_conflict, run};
use limits::{History, Range};
use metrics_api::ApiMetrics;
use parking_lot::Mutex;
use sources::ScaleTarget;
use status::{ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED, set};
use std::collections::HashMap;
use std::sync::Arc;

struct Autoscalers<M> {
    context: Context,
    options: Options,
    autoscalers: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    scales: Scales,
    metrics: M,
    histories: Mutex<HashMap<Key, History>>,
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::new(&context.world);
    let (autoscalers, pods) = (context.informer::<HorizontalPodAutoscaler>(), context.informer::<Pod>());
    let changed = queue.clone();
    autoscalers.listen(move |change| match change {
        // the controller's own writes of the status need no sync
        Change::Updated { old, new } if old.spec == new.spec => {}
        _ => changed.add(change.key()),
    });
    autoscalers.synced().await;
    pods.synced().await;
    let controller = Autoscalers {
        metrics: ApiMetrics::new(context.client.clone(), context.names.clone()),
        scales: Scales::new(context.client.clone()),
        histories: Mutex::default(),
        autoscalers,
        pods,
        options: options.clone(),
        context,
    };
    run::run(Arc::new(controller), queue, options.workers).await;
}

impl<M: Metrics> Reconcile for Autoscalers<M> {
    type Key = Key;

    fn name(&self) -> &'static str {
        "horizontalpodautoscaling"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(autoscaler) = self.autoscalers.get(key) else {
            self.histories.lock().remove(key);
            return Ok(Action::AwaitChange);
        };
        let mut next = autoscaler.status.clone();
        next.observed_generation = Some(autoscaler.metadata.generation).filter(|it| *it != 0);
        if let Err(why) = self.sync(key, &autoscaler, &mut next).await {
            tracing::debug!(%key, %why, "the target of an autoscaler cannot be scaled");
        }
        if next != autoscaler.status {
            let change = |it: &mut HorizontalPodAutoscaler| it.status = next.clone();
            retry_on_conflict::status(&self.context.client, &*autoscaler, change).await?;
        }
        // a failure is retried at the next sync, not earlier
        Ok(Action::Requeue(self.options.sync_period))
    }
}

/// The recommendation of the metrics.
struct Recommendation {
    replicas: i32,
    metric: String,
    statuses: Vec<MetricStatus>,
}

/// The desired number of replicas, and the reason.
struct DesiredReplicas {
    replicas: i32,
    why: String,
    statuses: Vec<MetricStatus>,
}

impl DesiredReplicas {
    fn of(replicas: i32, why: &str) -> Self {
        DesiredReplicas { replicas, why: why.to_owned(), statuses: Vec::new() }
    }
}

impl<M: Metrics> Autoscalers<M> {
    async fn sync(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        next: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<(), Failure> {
        let (now, reference) = (self.context.time(), &autoscaler.spec.scale_target_ref);
        let target = Target {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
            namespace: key.namespace.clone(),
            name: reference.name.clone(),
        };
        let scale = match self.scale(&target).await {
            Ok(scale) => scale,
            Err(why) => {
                let error = why.message();
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {error}");
                set(next, ABLE_TO_SCALE, false, "FailedGetScale", &message, now);
                self.context.events.note(autoscaler, Note::warning("FailedGetScale", error));
                return Err(why);
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        set(next, ABLE_TO_SCALE, true, "SucceededGetScale", message, now);
        next.current_replicas = scale.spec.replicas;
        let desired = self.desired_replicas(key, autoscaler, &scale, next).await?;
        if desired.replicas != scale.spec.replicas {
            self.rescale(key, autoscaler, &target, scale, &desired, next).await?;
        }
        next.desired_replicas = desired.replicas;
        next.current_metrics = desired.statuses;
        Ok(())
    }

    /// The desired number of replicas: the recommendation within the limits.
    async fn desired_replicas(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        scale: &Scale,
        next: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<DesiredReplicas, Failure> {
        let spec = &autoscaler.spec;
        let (current, least) = (scale.spec.replicas, spec.min_replicas.unwrap_or(1));
        let (now, elapsed) = (self.context.time(), self.context.world.elapsed());
        self.histories.lock().entry(key.clone()).or_default().begin(current, elapsed);
        if current == 0 && least != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            set(next, SCALING_ACTIVE, false, "ScalingDisabled", message, now);
            return Ok(DesiredReplicas::of(0, ""));
        }
        if current > spec.max_replicas {
            return Ok(DesiredReplicas::of(
                spec.max_replicas,
                "Current number of replicas above Spec.MaxReplicas",
            ));
        }
        if current < least {
            return Ok(DesiredReplicas::of(least, "Current number of replicas below Spec.MinReplicas"));
        }
        let recommendation = self.recommend(key, autoscaler, scale, next).await.inspect_err(|why| {
            let note = Note::warning("FailedComputeMetricsReplicas", why.message());
            self.context.events.note(autoscaler, note);
        })?;
        let why = match recommendation.replicas > current {
            true => format!("{} above target", recommendation.metric),
            false => "All metrics below target".to_owned(),
        };
        let range = Range { current, least, most: spec.max_replicas };
        let mut histories = self.histories.lock();
        let history = histories.entry(key.clone()).or_default();
        let limited =
            history.limit(recommendation.replicas, range, spec.behavior.as_deref(), &self.options, elapsed);
        set(next, ABLE_TO_SCALE, true, limited.able.0, limited.able.1, now);
        let (is_limited, reason, message) = limited.limited;
        set(next, SCALING_LIMITED, is_limited, reason, message, now);
        Ok(DesiredReplicas { replicas: limited.replicas, why, statuses: recommendation.statuses })
    }

    /// Writes the scale of a target.
    async fn rescale(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        target: &Target,
        mut scale: Scale,
        desired: &DesiredReplicas,
        next: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<(), Failure> {
        let (now, current) = (self.context.time(), scale.spec.replicas);
        let DesiredReplicas { replicas, why, .. } = desired;
        let record = |note| self.context.events.note(autoscaler, note);
        scale.spec.replicas = *replicas;
        if let Err(failure) = self.scales.replace(target, &scale).await {
            let error = failure.message();
            record(Note::warning(
                "FailedRescale",
                format!("New size: {replicas}; reason: {why}; error: {error}"),
            ));
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            set(next, ABLE_TO_SCALE, false, "FailedUpdateScale", &message, now);
            return Err(failure);
        }
        let message = format!("the HPA controller was able to update the target scale to {replicas}");
        set(next, ABLE_TO_SCALE, true, "SucceededRescale", &message, now);
        record(Note::normal("SuccessfulRescale", format!("New size: {replicas}; reason: {why}")));
        let behavior = autoscaler.spec.behavior.as_deref();
        let mut histories = self.histories.lock();
        let history = histories.entry(key.clone()).or_default();
        history.record_change(current, *replicas, behavior, self.context.world.elapsed());
        next.last_scale_time = Some(now);
        Ok(())
    }

    /// Reads the scale of a target.
    async fn scale(&self, target: &Target) -> Result<Scale, Failure> {
        match self.scales.get(target).await? {
            Lookup::Found(scale) => Ok(scale),
            Lookup::Absent => Err(Failure::Other(format!("{} {:?} not found", target.kind, target.name))),
            Lookup::NoScale => Err(Failure::Other(format!(
                "{}/{} does not implement the scale subresource",
                target.api_version, target.kind
            ))),
        }
    }

    /// Evaluates all metrics. A failed one is an error only if all failed, or the others call for fewer replicas.
    async fn recommend(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        scale: &Scale,
        next: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<Recommendation, Failure> {
        let now = self.context.time();
        let record =
            |reason, message: &str| self.context.events.note(autoscaler, Note::warning(reason, message));
        if scale.status.selector.is_empty() {
            let why = "selector is required";
            record("SelectorRequired", why);
            let message = "the HPA target's scale is missing a selector";
            set(next, SCALING_ACTIVE, false, "InvalidSelector", message, now);
            return Err(Failure::Other(why.to_owned()));
        }
        let selector = match Selector::parse(&scale.status.selector) {
            Ok(selector) => selector,
            Err(why) => {
                let why =
                    format!("couldn't convert selector into a corresponding internal selector object: {why}");
                record("InvalidSelector", &why);
                set(next, SCALING_ACTIVE, false, "InvalidSelector", &why, now);
                return Err(Failure::Other(why));
            }
        };
        let mut pods = self.pods.in_namespace(&key.namespace);
        pods.retain(|pod| selector.matches(&pod.metadata.labels));
        let scaled = ScaleTarget {
            namespace: &key.namespace,
            current: scale.spec.replicas,
            running: scale.status.replicas,
            selector: &scale.status.selector,
            pods: &pods,
            options: &self.options,
            now,
        };
        let metrics = &autoscaler.spec.metrics;
        let mut best: Option<(i32, String)> = None;
        let (mut statuses, mut invalid, mut first) = (Vec::new(), 0, None);
        for metric in metrics {
            match sources::evaluate(&self.metrics, &scaled, metric).await {
                Ok(evaluation) => {
                    if best.as_ref().is_none_or(|(most, _)| evaluation.replicas > *most) {
                        best = Some((evaluation.replicas, evaluation.name));
                    }
                    statuses.push(evaluation.status);
                }
                Err(why) => {
                    record(why.reason, &why.message);
                    invalid += 1;
                    first.get_or_insert(why);
                }
            }
        }
        match (first, best) {
            (None, Some((replicas, metric))) => Ok(self.set_active(next, replicas, metric, statuses)),
            (Some(_), Some((replicas, metric))) if replicas >= scaled.current => {
                Ok(self.set_active(next, replicas, metric, statuses))
            }
            (first, _) => {
                let (reason, why) =
                    first.map_or(("InvalidMetricSourceType", String::new()), |it| (it.reason, it.message));
                let message = format!("the HPA was unable to compute the replica count: {why}");
                set(next, SCALING_ACTIVE, false, reason, &message, now);
                let all = metrics.len();
                let why = format!("invalid metrics ({invalid} invalid out of {all}), first error is: {why}");
                Err(Failure::Other(why))
            }
        }
    }

    /// Sets the `ScalingActive` condition.
    fn set_active(
        &self,
        next: &mut HorizontalPodAutoscalerStatus,
        replicas: i32,
        metric: String,
        statuses: Vec<MetricStatus>,
    ) -> Recommendation {
        let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
        set(next, SCALING_ACTIVE, true, "ValidMetricFound", &message, self.context.time());
        Recommendation { replicas, metric, statuses }
    }
}
