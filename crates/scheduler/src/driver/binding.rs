//! Binds pods to their nodes, after the volumes of their claims.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Binding, ObjectReference, PersistentVolume, Pod};
use api::meta::v1::{ObjectMeta, Status};
use client::Api;

use super::Driver;
use super::event_recorder::{EventNote, EventType};
use crate::cycle::Placement;
use crate::metrics::{AttemptResult, PluginStatus, VolumeStage};
use crate::plugins::volume_binding::{WrittenVolumes, check_bindings};
use crate::pod_info::PodInfo;
use crate::queue::QueuedPod;

/// How often the volumes of a pod are looked at without an event.
const VOLUME_POLL: Duration = Duration::from_secs(1);

impl Driver {
    /// Binds a pod that counts on its node already; a failure takes that back.
    pub(super) async fn bind(
        &self,
        queued: QueuedPod<Arc<PodInfo>>,
        placement: Box<Placement>,
        began: Duration,
    ) {
        let _binding = self.metrics.begin_binding();
        let pod = queued.pod.clone();
        if let Err(message) = self.reserve(&placement.resources).await {
            self.release(&placement.resources).await;
            let mut scheduler = self.lock().await;
            let failure = scheduler.reservation_failed(self.world.elapsed(), queued, &placement, message);
            drop(scheduler);
            self.wake.notify_one();
            self.observe_failure(&pod, &failure, began);
            return self.report(&pod, &failure).await;
        }
        let bound = match self.bind_volumes(&pod, &placement).await {
            Ok(()) => self.bind_pod(&pod, &placement.node).await,
            Err(message) => Err(format!("running PreBind plugin \"VolumeBinding\": {message}")),
        };
        let Err(message) = bound else {
            self.observe_binding(&queued, began);
            if placement.resources.is_needed {
                self.delete_scheduling(&pod).await;
            }
            let note =
                format!("Successfully assigned {}/{} to {}", pod.namespace(), pod.name(), placement.node);
            let (reason, action) = ("Scheduled", "Binding");
            let event_type = EventType::Normal;
            return self.recorder.record(
                &pod.pod.spec.scheduler_name,
                &pod,
                EventNote { event_type, reason, action, note, related: None },
            );
        };
        self.release(&placement.resources).await;
        let failure = {
            let mut scheduler = self.lock().await;
            let now = self.world.elapsed();
            scheduler.binding_failed(now, queued, &placement, message)
        };
        self.wake.notify_one();
        self.observe_failure(&pod, &failure, began);
        self.report(&pod, &failure).await;
    }

    fn observe_binding(&self, queued: &QueuedPod<Arc<PodInfo>>, began: Duration) {
        let now = self.world.elapsed();
        let profile = &queued.pod.pod.spec.scheduler_name;
        self.metrics.observe_attempt(AttemptResult::Scheduled, profile, now.saturating_sub(began));
        let since = now.saturating_sub(queued.initial_attempt_timestamp);
        self.metrics.observe_scheduled_pod(queued.attempts, since);
    }

    /// Binds a pod through the extender that does so, or through the API server.
    async fn bind_pod(&self, pod: &PodInfo, node: &str) -> Result<(), String> {
        let mut binders = self.extenders.iter().filter(|it| it.is_binder() && it.is_interested(pod));
        if let Some(binder) = binders.next() {
            return binder.bind(pod, node).await.map_err(|why| format!("binding rejected: {why}"));
        }
        let began = self.world.elapsed();
        let bound = self.bind_at_server(pod, node).await;
        let (took, status) = (self.world.elapsed().saturating_sub(began), PluginStatus::of(&bound));
        self.metrics.observe_point("Bind", status, &pod.pod.spec.scheduler_name, took);
        self.metrics.observe_plugin("DefaultBinder", "Bind", status, took);
        bound
    }

    async fn bind_at_server(&self, pod: &PodInfo, node: &str) -> Result<(), String> {
        let binding = Binding {
            metadata: ObjectMeta {
                name: pod.name().to_owned(),
                namespace: pod.namespace().to_owned(),
                uid: pod.uid().to_owned(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: "Node".to_owned(),
                name: node.to_owned(),
                ..ObjectReference::default()
            },
            ..Binding::default()
        };
        let pods: Api<Pod> = Api::namespaced(&self.client, pod.namespace());
        let bound = pods.create_subresource::<Binding, Status>(pod.name(), "binding", &binding).await;
        bound.map(drop).map_err(|why| {
            format!("binding rejected: running Bind plugin \"DefaultBinder\": {}", why.message())
        })
    }

    async fn bind_volumes(&self, pod: &PodInfo, placement: &Placement) -> Result<(), String> {
        let began = self.world.elapsed();
        let bound = self.write_and_await_volumes(pod, placement).await;
        let (took, status) = (self.world.elapsed().saturating_sub(began), PluginStatus::of(&bound));
        if bound.is_err() {
            self.metrics.observe_volume_error(VolumeStage::Bind);
        }
        self.metrics.observe_point("PreBind", status, &pod.pod.spec.scheduler_name, took);
        self.metrics.observe_plugin("VolumeBinding", "PreBind", status, took);
        bound
    }

    /// Writes the decisions about volumes, and waits until the claims are bound.
    async fn write_and_await_volumes(&self, pod: &PodInfo, placement: &Placement) -> Result<(), String> {
        if placement.volumes.is_empty() {
            return Ok(());
        }
        let failed = |why: client::Error| format!("binding volumes: {}", why.message());
        let written = self.write_volumes(placement).await.map_err(failed)?;
        let timeout = self.volume_timeouts.get(&pod.pod.spec.scheduler_name).copied().unwrap_or_default();
        let deadline = self.world.elapsed().saturating_add(timeout);
        loop {
            let changed = self.changed.notified();
            if self
                .are_volumes_bound(&written, &placement.node)
                .await
                .map_err(|why| format!("binding volumes: {why}"))?
            {
                return Ok(());
            }
            let now = self.world.elapsed();
            if now >= deadline {
                return Err("binding volumes: timed out waiting for the condition".to_owned());
            }
            let next = deadline.min(now.saturating_add(VOLUME_POLL));
            tokio::select! {
                biased;
                () = changed => {}
                () = self.world.sleep_until(next) => {}
            }
        }
    }

    async fn write_volumes(&self, placement: &Placement) -> Result<WrittenVolumes, client::Error> {
        let (volumes, claims) = placement.volumes.decide(&placement.node);
        let mut written = WrittenVolumes::default();
        for (volume, (claim, _)) in volumes.iter().zip(&placement.volumes.bindings) {
            let volume = Arc::new(Api::<PersistentVolume>::all(&self.client).replace(volume).await?);
            self.lock().await.snapshot.storage.volumes.assume(volume.clone());
            written.bindings.push((claim.clone(), volume));
        }
        for claim in &claims {
            let claim = Arc::new(Api::beside(&self.client, claim).replace(claim).await?);
            self.lock().await.snapshot.storage.claims.assume(claim.clone());
            written.provisions.push(claim);
        }
        Ok(written)
    }

    async fn are_volumes_bound(&self, written: &WrittenVolumes, node: &str) -> Result<bool, String> {
        let scheduler = self.lock().await;
        let node = scheduler.snapshot.node(node).ok_or_else(|| format!("node {node:?} not found"))?;
        check_bindings(written, &scheduler.snapshot.storage, node, scheduler.features)
    }
}
