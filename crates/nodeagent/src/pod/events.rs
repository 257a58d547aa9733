//! Events about pods and their containers.

use super::spec::ContainerKind;
use api::core::v1::Pod;
use client::{EventType, Recorder};

/// Records events. A test hands in a list.
pub trait PodEvents: Send + Sync + 'static {
    fn record(
        &self,
        pod: &Pod,
        container: Option<(ContainerKind, &str)>,
        event_type: EventType,
        reason: &str,
        message: &str,
    );
}

impl PodEvents for Recorder {
    fn record(
        &self,
        pod: &Pod,
        container: Option<(ContainerKind, &str)>,
        event_type: EventType,
        reason: &str,
        message: &str,
    ) {
        let mut about = client::events::reference(pod);
        if let Some((kind, name)) = container {
            about.field_path = kind.field_path(name);
        }
        self.record_about(about, event_type, reason, message);
    }
}
