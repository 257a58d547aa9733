//! A fake node agent: reports the status of pods, without nodes.

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

/// Reports all pods of a namespace as running and ready, and removes deleted ones, until it is dropped.
pub struct Agent {
    running: JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Agent {
    pub fn start(client: Client, namespace: &str) -> Self {
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let running = tokio::spawn(async move {
            let listed = pods.list(&ListParams::default()).await.unwrap();
            for pod in &listed.items {
                sync_pod(&pods, pod).await;
            }
            let version = listed.metadata.resource_version.unwrap_or_default();
            let events = pods.watch(&WatchParams::default().timeout(290), &version).await.unwrap();
            pin_mut!(events);
            while let Some(event) = events.next().await {
                if let Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event {
                    sync_pod(&pods, &pod).await;
                }
            }
        });
        Agent { running }
    }
}

async fn sync_pod(pods: &Api<Pod>, pod: &Pod) {
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
    } else if !is_ready(pod) {
        make_ready(pods, &pod.name_any()).await;
    }
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Reports a pod as running and ready, if it exists.
pub async fn make_ready(pods: &Api<Pod>, name: &str) {
    set_status(pods, name, "Running", "True").await;
}

/// Reports the phase and readiness of a pod.
pub async fn set_status(pods: &Api<Pod>, name: &str, phase: &str, ready: &str) {
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": at(crate::NOW)});
    let status = json!({"status": {"phase": phase, "conditions": [condition]}});
    let _ = pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(&status)).await;
}

fn at(seconds: u64) -> serde_json::Value {
    let time = k8s_openapi::jiff::Timestamp::from_second(seconds as i64).unwrap();
    json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time))
}
