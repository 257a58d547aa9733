//! Reports failed attempts: event, condition, nominated node; and preempts pods.

use api::core::v1::{Pod, PodCondition, PodStatus};
use api::meta::v1::{DeleteOptions, ObjectMeta};
use api::{Kinded, Time};
use client::{Api, Error, Patch, json_value, unless};
use serde_json::json;

use super::Driver;
use super::event_recorder::{EventNote, EventType, pod_reference, truncate_note};
use crate::cycle::{Failure, Nomination};
use crate::pod_info::PodInfo;
use crate::preemption::Preemption;

const POD_SCHEDULED: &str = "PodScheduled";
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// The manager of the condition on preempted pods.
const FIELD_MANAGER: &str = "KubeScheduler";

impl Driver {
    /// Writes why a pod waits, and makes room for it.
    pub(super) async fn report(&self, pod: &PodInfo, failure: &Failure) {
        let message = failure.message();
        self.record_failure(pod, message.clone());
        match self.write_status(pod, failure, message).await {
            Err(why) if !why.is_not_found() => {
                tracing::error!(pod = pod.name(), namespace = pod.namespace(), %why, "cannot write why a pod waits");
            }
            _ => {}
        }
        if let Some(claim) = &failure.deallocation {
            self.write_claim(claim).await;
        }
        // after the status: a victim's end wakes the pod, and its binding must not be overwritten by an older status
        if let Some(preemption) = &failure.preemption {
            self.preempt(pod, preemption).await;
        }
    }

    pub(super) fn record_failure(&self, pod: &PodInfo, note: String) {
        let note = EventNote {
            event_type: EventType::Warning,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: truncate_note(note),
            related: None,
        };
        self.recorder.record(&pod.pod.spec.scheduler_name, pod, note);
    }

    /// Writes the condition, and the nominated node where it changes.
    async fn write_status(&self, pod: &PodInfo, failure: &Failure, message: String) -> Result<(), Error> {
        let status = &pod.pod.status;
        let before = status.conditions.iter().find(|it| it.type_ == POD_SCHEDULED);
        let nominated = match &failure.nomination {
            Nomination::Keep => None,
            Nomination::Clear => Some(""),
            Nomination::Node(node) => Some(&**node),
        };
        let nominated = nominated.filter(|node| *node != status.nominated_node_name);
        let has_condition = before
            .is_some_and(|it| it.status == "False" && it.reason == failure.reason() && it.message == message);
        if has_condition && nominated.is_none() {
            return Ok(());
        }
        let since = before.filter(|it| it.status == "False").and_then(|it| it.last_transition_time);
        let condition = PodCondition {
            type_: POD_SCHEDULED.to_owned(),
            status: "False".to_owned(),
            reason: failure.reason().to_owned(),
            message,
            last_transition_time: since.or(Some(Time::from(self.world.now()))),
            ..PodCondition::default()
        };
        let mut patch = json!({"status": {"conditions": [json_value(&condition)]}});
        match nominated {
            None => {}
            Some("") => patch["status"]["nominatedNodeName"] = serde_json::Value::Null,
            Some(node) => patch["status"]["nominatedNodeName"] = node.into(),
        }
        let pods: Api<Pod> = Api::namespaced(&self.client, pod.namespace());
        pods.patch_status(pod.name(), &Patch::strategic(patch)).await.map(drop)
    }

    /// Deletes the victims of a preemption, each with the condition that says why.
    async fn preempt(&self, pod: &PodInfo, preemption: &Preemption) {
        let deletions = preemption.victims.iter().map(|victim| self.evict(pod, victim, &preemption.node));
        futures_util::future::join_all(deletions).await;
        for displaced in &preemption.displaced {
            let pods: Api<Pod> = Api::namespaced(&self.client, displaced.namespace());
            let patch = Patch::strategic(json!({"status": {"nominatedNodeName": null}}));
            if let Err(why) = unless(404, pods.patch_status(displaced.name(), &patch).await) {
                tracing::error!(pod = displaced.name(), %why, "cannot clear a nominated node");
            }
        }
    }

    async fn evict(&self, preemptor: &PodInfo, victim: &PodInfo, node: &str) {
        let pods: Api<Pod> = Api::namespaced(&self.client, victim.namespace());
        let scheduler = &preemptor.pod.spec.scheduler_name;
        let condition = PodCondition {
            type_: DISRUPTION_TARGET.to_owned(),
            status: "True".to_owned(),
            reason: "PreemptionByKubeScheduler".to_owned(),
            message: format!("{scheduler}: preempting to accommodate a higher priority pod"),
            last_transition_time: Some(Time::from(self.world.now())),
            ..PodCondition::default()
        };
        let named = Pod {
            metadata: ObjectMeta {
                name: victim.name().to_owned(),
                namespace: victim.namespace().to_owned(),
                ..ObjectMeta::default()
            },
            status: PodStatus { conditions: vec![condition], ..PodStatus::default() },
            ..Pod::default()
        };
        let applied = unless(404, pods.patch_status(victim.name(), &apply_of_status(&named)).await);
        let outcome = match applied {
            Ok(_) => unless(404, pods.delete(victim.name(), &DeleteOptions::default()).await).map(drop),
            Err(why) => Err(why),
        };
        match outcome {
            Ok(()) => self.recorder.record(
                scheduler,
                victim,
                EventNote {
                    event_type: EventType::Normal,
                    reason: "Preempted",
                    action: "Preempting",
                    note: format!("Preempted by a pod on node {node}"),
                    related: Some(pod_reference(preemptor)),
                },
            ),
            Err(why) => tracing::error!(pod = victim.name(), node, %why, "cannot preempt a pod"),
        }
    }
}

/// An apply of the conditions of a pod's status, and of nothing else.
fn apply_of_status(pod: &Pod) -> Patch {
    let body = json!({
        "apiVersion": Pod::api_version(),
        "kind": "Pod",
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        "status": {"conditions": pod.status.conditions.iter().map(json_value).collect::<Vec<_>>()},
    });
    Patch::Apply { manager: FIELD_MANAGER.to_owned(), force: true, body: body.to_string().into_bytes() }
}
