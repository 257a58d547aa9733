//! Events of containers: those of the CRI, or those of containerd.
//!
//! containerd before 1.7 has no events in the CRI, and serves its own on the same socket. Such an event comes before the
//! CRI shows the new state of the container.

use super::connection::{CriRuntime, error};
use crate::runtime::{RuntimeCode, RuntimeError, RuntimeEvent};
use grpc::Message;
use grpc::containerd_events::events_client::EventsClient;
use grpc::containerd_events::{Envelope, SubscribeRequest, TaskExit};
use grpc::cri::{ContainerEventResponse, GetEventsRequest};
use grpc::tonic::metadata::MetadataValue;
use grpc::tonic::{Request, Streaming};
use outbound::RpcError;
use tokio::sync::mpsc;

/// Events that wait for the agent; a runtime that sends more waits.
const WAITING: usize = 256;
/// The namespace of the CRI in containerd.
const NAMESPACE: &str = names::node::CONTAINERD_NAMESPACE;

pub(super) async fn subscribe(runtime: &CriRuntime) -> Result<mpsc::Receiver<RuntimeEvent>, RuntimeError> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let answer = runtime.call(runtime.runtime().get_container_events(GetEventsRequest {})).await;
    match answer {
        Ok(mut stream) => {
            // a runtime that lacks events may refuse in the first message
            let first = env::io::timeout(std::time::Duration::from_millis(100), stream.message()).await;
            match first {
                Ok(Err(status)) => containerd_events(runtime, sender, error(RpcError::from(status))).await?,
                Ok(Ok(Some(event))) => {
                    let _ = sender.send(cri_event(event)).await;
                    tokio::spawn(forward_cri(stream, sender));
                }
                Ok(Ok(None)) => {}
                Err(_) => drop(tokio::spawn(forward_cri(stream, sender))),
            }
        }
        Err(why) => containerd_events(runtime, sender, why).await?,
    }
    Ok(receiver)
}

async fn containerd_events(
    runtime: &CriRuntime,
    sender: mpsc::Sender<RuntimeEvent>,
    refusal: RuntimeError,
) -> Result<(), RuntimeError> {
    if refusal.code != RuntimeCode::Unimplemented {
        return Err(refusal);
    }
    let filters = vec![format!("namespace=={NAMESPACE},topic==/tasks/exit")];
    let mut request = Request::new(SubscribeRequest { filters });
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    let mut client = EventsClient::new(runtime.channel.clone());
    let stream = runtime.call(client.subscribe(request)).await?;
    tokio::spawn(forward_containerd(stream, sender));
    Ok(())
}

async fn forward_cri(mut stream: Streaming<ContainerEventResponse>, sender: mpsc::Sender<RuntimeEvent>) {
    while let Ok(Some(event)) = stream.message().await {
        if sender.send(cri_event(event)).await.is_err() {
            return;
        }
    }
}

fn cri_event(event: ContainerEventResponse) -> RuntimeEvent {
    let sandbox = event.pod_sandbox_status.unwrap_or_default();
    RuntimeEvent {
        container_id: event.container_id,
        sandbox_id: sandbox.id,
        pod_uid: sandbox.metadata.unwrap_or_default().uid,
    }
}

async fn forward_containerd(mut stream: Streaming<Envelope>, sender: mpsc::Sender<RuntimeEvent>) {
    while let Ok(Some(envelope)) = stream.message().await {
        let value = envelope.event.unwrap_or_default().value;
        let Ok(exit) = TaskExit::decode(value) else { continue };
        if exit.id != exit.container_id {
            continue;
        }
        let event = RuntimeEvent {
            container_id: exit.container_id,
            sandbox_id: String::new(),
            pod_uid: String::new(),
        };
        if sender.send(event).await.is_err() {
            return;
        }
    }
}
