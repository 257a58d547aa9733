//! Events of containers: those of the CRI, or those of containerd.
//!
//! containerd before 1.7 has no events in the CRI, and serves its own on the same socket. Such an event comes before the
//! CRI shows the new state of the container.

use super::connection::{CriRuntime, error};
use crate::runtime::{ContainerChange, RuntimeCode, RuntimeError, RuntimeEvent};
use grpc::Message;
use grpc::containerd_events::events_client::EventsClient;
use grpc::containerd_events::{Envelope, SubscribeRequest, TaskExit};
use grpc::cri::{ContainerEventResponse, ContainerEventType, GetEventsRequest};
use grpc::tonic::metadata::MetadataValue;
use grpc::tonic::{Request, Status, Streaming};
use outbound::RpcError;
use std::time::Duration;
use tokio::sync::mpsc;

/// Events that wait for the agent; a runtime that sends more waits.
const WAITING: usize = 256;
/// The namespace of the CRI in containerd.
const NAMESPACE: &str = names::node::CONTAINERD_NAMESPACE;

/// The time in which a runtime refuses a subscription. One that accepts may be silent until its first event.
const REFUSAL_TIME: Duration = Duration::from_millis(300);

pub(super) async fn subscribe(runtime: &CriRuntime) -> Result<mpsc::Receiver<RuntimeEvent>, RuntimeError> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let mut following = tokio::spawn(follow(runtime.clone(), sender));
    match env::io::timeout(REFUSAL_TIME, &mut following).await {
        Ok(Ok(Err(refusal))) => Err(refusal),
        _ => Ok(receiver),
    }
}

/// Forwards events until the stream or the receiver ends.
async fn follow(runtime: CriRuntime, sender: mpsc::Sender<RuntimeEvent>) -> Result<(), RuntimeError> {
    let refused = |status| error(RpcError::from(status));
    let request = GetEventsRequest {};
    let refusal = match runtime.runtime().get_container_events(request).await {
        // a runtime that lacks events may refuse in the first message
        Ok(answer) => match forward_cri(answer.into_inner(), &sender).await {
            Ok(()) => return Ok(()),
            Err(status) => refused(status),
        },
        Err(status) => refused(status),
    };
    if refusal.code != RuntimeCode::Unimplemented {
        return Err(refusal);
    }
    // the slash must be quoted
    let filters = vec![format!("namespace=={NAMESPACE},topic==\"/tasks/exit\"")];
    let mut request = Request::new(SubscribeRequest { filters });
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    let mut client = EventsClient::new(runtime.channel.clone());
    let answer = client.subscribe(request).await.map_err(refused)?;
    forward_containerd(answer.into_inner(), sender).await;
    Ok(())
}

async fn forward_cri(
    mut stream: Streaming<ContainerEventResponse>,
    sender: &mpsc::Sender<RuntimeEvent>,
) -> Result<(), Status> {
    while let Some(event) = stream.message().await? {
        if let Some(event) = cri_event(event)
            && sender.send(event).await.is_err()
        {
            break;
        }
    }
    Ok(())
}

/// The event, unless it is of a type that was not there in version 1 of the CRI.
fn cri_event(event: ContainerEventResponse) -> Option<RuntimeEvent> {
    let sandbox = event.pod_sandbox_status.unwrap_or_default();
    let change = match ContainerEventType::try_from(event.container_event_type).ok()? {
        ContainerEventType::ContainerCreatedEvent => ContainerChange::Created,
        ContainerEventType::ContainerStartedEvent => ContainerChange::Started,
        ContainerEventType::ContainerStoppedEvent => ContainerChange::Stopped,
        ContainerEventType::ContainerDeletedEvent => ContainerChange::Deleted,
    };
    Some(RuntimeEvent {
        container_id: event.container_id,
        sandbox_id: sandbox.id,
        pod_uid: sandbox.metadata.unwrap_or_default().uid,
        change,
    })
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
            change: ContainerChange::Stopped,
        };
        if sender.send(event).await.is_err() {
            return;
        }
    }
}
