//! The stream of container events.

use super::CriService;
use super::status::rpc_status;
use super::to_cri;
use crate::runtime::{ContainerChange, RuntimeEvent};
use futures_util::Stream;
use grpc::cri::{ContainerEventResponse, ContainerEventType};
use grpc::tonic::Status;
use std::pin::Pin;
use std::sync::Arc;

/// The responses of `GetContainerEvents`.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<ContainerEventResponse, Status>> + Send>>;

/// Events from now on. The stream ends when the client falls behind by more than the runtime keeps.
pub async fn stream(service: Arc<CriService>) -> Result<EventStream, Status> {
    let events = service.runtime.events().await.map_err(rpc_status)?;
    let responses = futures_util::stream::unfold((service, events), |(service, mut events)| async {
        loop {
            let event = events.recv().await?;
            if let Some(response) = response(&service, event).await {
                return Some((Ok(response), (service, events)));
            }
        }
    });
    Ok(Box::pin(responses))
}

/// The response to an event, with the states of all containers of its pod.
async fn response(service: &CriService, event: RuntimeEvent) -> Option<ContainerEventResponse> {
    let mut containers_statuses = Vec::new();
    for container in service.runtime.containers(None).await.ok()? {
        if container.sandbox_id == event.sandbox_id
            && let Ok(status) = service.runtime.container_status(&container.id).await
        {
            containers_statuses.push(status);
        }
    }
    let kind = match event.change {
        ContainerChange::Created => ContainerEventType::ContainerCreatedEvent,
        ContainerChange::Started => ContainerEventType::ContainerStartedEvent,
        ContainerChange::Stopped => ContainerEventType::ContainerStoppedEvent,
        ContainerChange::Deleted => ContainerEventType::ContainerDeletedEvent,
    };
    // the sandbox of a container that was removed may be gone
    let sandbox = service.runtime.sandbox_status(&event.sandbox_id).await.ok();
    Some(ContainerEventResponse {
        container_id: event.container_id,
        container_event_type: kind as i32,
        created_at: service.now(),
        pod_sandbox_status: sandbox.map(to_cri::sandbox_status),
        containers_statuses: containers_statuses.into_iter().map(to_cri::container_status).collect(),
    })
}
