//! Horizontal pod autoscalers: how many replicas something should have follows from what is measured.
//!
//! ```text
//! scale of the target ─► metrics (sources.rs, replicas.rs) ─► limits (limits.rs) ─► scale, status
//! ```
//!
//! What always holds: a metric that is not known never makes a target smaller; of several the one that asks for the most
//! counts; nothing is scaled that has no replicas, since that is how people switch an autoscaler off.

mod api;
mod limits;
mod metrics;
mod options;
mod replicas;
mod sources;
mod status;

pub use options::Options;

use self::metrics::Metrics;
use crate::Context;
use crate::scales::{Lookup, Scales, Target};
use api::ApiMetrics;
use client::events::Note;
use client::retry_on_conflict;
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, run};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use limits::{History, Range};
use parking_lot::Mutex;
use rest::selector::{Requirement, parse_labels};
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
    let queue = Queue::<Key>::default();
    let (autoscalers, pods) = (context.informer::<HorizontalPodAutoscaler>(), context.informer::<Pod>());
    let news = queue.clone();
    autoscalers.listen(move |change| match change {
        // what is written here is no reason to look again
        Change::Updated { old, new } if old.spec == new.spec => {}
        _ => news.add(change.key()),
    });
    autoscalers.synced().await;
    pods.synced().await;
    let this = Autoscalers {
        metrics: ApiMetrics::new(context.client.clone(), context.names.clone()),
        scales: Scales::new(context.client.clone()),
        histories: Mutex::default(),
        autoscalers,
        pods,
        options: options.clone(),
        context,
    };
    run::run(Arc::new(this), queue, options.workers).await;
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
        let Some(spec) = &autoscaler.spec else { return Ok(Action::AwaitChange) };
        let before = autoscaler.status.clone().unwrap_or_default();
        let mut next = before.clone();
        next.observed_generation = autoscaler.metadata.generation;
        if let Err(why) = self.look(key, &autoscaler, spec, &mut next).await {
            tracing::debug!(%key, %why, "cannot be scaled");
        }
        if next != before {
            let change = |it: &mut HorizontalPodAutoscaler| it.status = Some(next.clone());
            retry_on_conflict::status(&self.context.client, &*autoscaler, change).await?;
        }
        // whatever went wrong is looked at again in its turn, and not before
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
    async fn look(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        spec: &HorizontalPodAutoscalerSpec,
        next: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<(), Failure> {
        let now = self.context.time();
        let target = Target {
            api_version: spec.scale_target_ref.api_version.clone().unwrap_or_default(),
            kind: spec.scale_target_ref.kind.clone(),
            namespace: key.namespace.clone(),
            name: spec.scale_target_ref.name.clone(),
        };
        let scale = match self.scale(&target).await {
            Ok(scale) => scale,
            Err(why) => {
                let error = why.message();
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {error}");
                set(next, ABLE_TO_SCALE, false, "FailedGetScale", &message, &now);
                self.context.events.note(autoscaler, Note::warning("FailedGetScale", error));
                return Err(why);
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        set(next, ABLE_TO_SCALE, true, "SucceededGetScale", message, &now);
        let current = replicas_of(&scale);
        next.current_replicas = Some(current).filter(|it| *it != 0);
        let wish = self.wish(key, autoscaler, spec, &scale, next).await?;
        if wish.replicas != current {
            self.rescale(key, autoscaler, &target, scale, &wish, next).await?;
        }
        next.desired_replicas = wish.replicas;
        next.current_metrics = Some(wish.statuses).filter(|it| !it.is_empty());
        Ok(())
    }

    async fn wish(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        spec: &HorizontalPodAutoscalerSpec,
        scale: &Scale,
        next: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<DesiredReplicas, Failure> {
        let (current, least) = (replicas_of(scale), spec.min_replicas.unwrap_or(1));
        let (now, elapsed) = (self.context.time(), self.context.world.elapsed());
        self.histories.lock().entry(key.clone()).or_default().begin(current, elapsed);
        if current == 0 && least != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            set(next, SCALING_ACTIVE, false, "ScalingDisabled", message, &now);
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
        let found = self.recommend(key, autoscaler, spec, scale, next).await.inspect_err(|why| {
            let note = Note::warning("FailedComputeMetricsReplicas", why.message());
            self.context.events.note(autoscaler, note);
        })?;
        let why = match found.replicas > current {
            true => format!("{} above target", found.metric),
            false => "All metrics below target".to_owned(),
        };
        let range = Range { current, least, most: spec.max_replicas };
        let mut histories = self.histories.lock();
        let history = histories.entry(key.clone()).or_default();
        let limited = history.limit(found.replicas, range, spec.behavior.as_ref(), &self.options, elapsed);
        set(next, ABLE_TO_SCALE, true, limited.able.0, limited.able.1, &now);
        let (is_limited, reason, message) = limited.limited;
        set(next, SCALING_LIMITED, is_limited, reason, message, &now);
        Ok(DesiredReplicas { replicas: limited.replicas, why, statuses: found.statuses })
    }

    async fn rescale(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        target: &Target,
        mut scale: Scale,
        wish: &DesiredReplicas,
        next: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<(), Failure> {
        let (now, current) = (self.context.time(), replicas_of(&scale));
        let DesiredReplicas { replicas, why, .. } = wish;
        let tell = |note| self.context.events.note(autoscaler, note);
        scale.spec.get_or_insert_default().replicas = Some(*replicas);
        if let Err(broke) = self.scales.replace(target, &scale).await {
            let error = broke.message();
            tell(Note::warning(
                "FailedRescale",
                format!("New size: {replicas}; reason: {why}; error: {error}"),
            ));
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            set(next, ABLE_TO_SCALE, false, "FailedUpdateScale", &message, &now);
            return Err(broke);
        }
        let message = format!("the HPA controller was able to update the target scale to {replicas}");
        set(next, ABLE_TO_SCALE, true, "SucceededRescale", &message, &now);
        tell(Note::normal("SuccessfulRescale", format!("New size: {replicas}; reason: {why}")));
        let behavior = autoscaler.spec.as_ref().and_then(|it| it.behavior.as_ref());
        let mut histories = self.histories.lock();
        let history = histories.entry(key.clone()).or_default();
        history.scaled(current, *replicas, behavior, self.context.world.elapsed());
        next.last_scale_time = Some(now);
        Ok(())
    }

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

    /// Asks all metrics. Those that are not known count only where all are unknown or the rest asks for less.
    async fn recommend(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        spec: &HorizontalPodAutoscalerSpec,
        scale: &Scale,
        next: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<Recommendation, Failure> {
        let now = self.context.time();
        let tell =
            |reason, message: &str| self.context.events.note(autoscaler, Note::warning(reason, message));
        let selector = scale.status.as_ref().and_then(|it| it.selector.clone()).unwrap_or_default();
        if selector.is_empty() {
            let why = "selector is required";
            tell("SelectorRequired", why);
            let message = "the HPA target's scale is missing a selector";
            set(next, SCALING_ACTIVE, false, "InvalidSelector", message, &now);
            return Err(Failure::Other(why.to_owned()));
        }
        let labels = match parse_labels(&selector) {
            Ok(labels) => labels,
            Err(why) => {
                let why = format!(
                    "couldn't convert selector into a corresponding internal selector object: {}",
                    why.message
                );
                tell("InvalidSelector", &why);
                set(next, SCALING_ACTIVE, false, "InvalidSelector", &why, &now);
                return Err(Failure::Other(why));
            }
        };
        let mut pods = self.pods.in_namespace(&key.namespace);
        pods.retain(|pod| is_selected(&labels, pod));
        let scaled = ScaleTarget {
            namespace: &key.namespace,
            current: replicas_of(scale),
            running: scale.status.as_ref().map_or(0, |it| it.replicas),
            selector: &selector,
            pods: &pods,
            options: &self.options,
            now: now.0,
        };
        let wanted = spec.metrics.as_deref().unwrap_or_default();
        let mut best: Option<(i32, String)> = None;
        let (mut statuses, mut unknown, mut first) = (Vec::new(), 0, None);
        for metric in wanted {
            match sources::ask(&self.metrics, &scaled, metric).await {
                Ok(answer) => {
                    if best.as_ref().is_none_or(|(most, _)| answer.replicas > *most) {
                        best = Some((answer.replicas, answer.name));
                    }
                    statuses.push(answer.status);
                }
                Err(why) => {
                    tell(why.reason, &why.message);
                    unknown += 1;
                    first.get_or_insert(why);
                    statuses.push(MetricStatus::default());
                }
            }
        }
        match (first, best) {
            (None, Some((replicas, metric))) => Ok(self.active(next, replicas, metric, statuses)),
            (Some(_), Some((replicas, metric))) if replicas >= scaled.current => {
                Ok(self.active(next, replicas, metric, statuses))
            }
            (first, _) => {
                let (reason, why) =
                    first.map_or(("InvalidMetricSourceType", String::new()), |it| (it.reason, it.message));
                let message = format!("the HPA was unable to compute the replica count: {why}");
                set(next, SCALING_ACTIVE, false, reason, &message, &now);
                let all = wanted.len();
                let why = format!("invalid metrics ({unknown} invalid out of {all}), first error is: {why}");
                Err(Failure::Other(why))
            }
        }
    }

    fn active(
        &self,
        next: &mut HorizontalPodAutoscalerStatus,
        replicas: i32,
        metric: String,
        statuses: Vec<MetricStatus>,
    ) -> Recommendation {
        let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
        set(next, SCALING_ACTIVE, true, "ValidMetricFound", &message, &self.context.time());
        // what is not known has nothing to be shown
        let statuses = statuses.into_iter().filter(|it| !it.type_.is_empty()).collect();
        Recommendation { replicas, metric, statuses }
    }
}

fn replicas_of(scale: &Scale) -> i32 {
    scale.spec.as_ref().and_then(|it| it.replicas).unwrap_or(0)
}

fn is_selected(labels: &[Requirement], pod: &Pod) -> bool {
    labels.iter().all(|it| it.matches(|key| pod.labels().get(key).map(String::as_str)))
}
