//! The health check of a KMS plugin, cached for a few seconds.

use super::service::{Service, V2};
use super::{Envelope, Version};
use env::World;
use grpc::kms_v2alpha1::StatusResponse;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long a success and a failure are cached.
const GOOD_FOR: Duration = Duration::from_secs(20);
const BAD_FOR: Duration = Duration::from_secs(3);

/// See the module.
pub(crate) struct Probe {
    envelope: Arc<Envelope>,
    /// The last result, and until when it is valid.
    last: Mutex<Option<(Result<(), String>, Duration)>>,
}

impl Probe {
    pub fn new(envelope: Arc<Envelope>) -> Self {
        Probe { envelope, last: Mutex::new(None) }
    }

    pub fn version(&self) -> Version {
        self.envelope.settings.version
    }

    /// The longest time that a check may take.
    pub fn check_timeout(&self) -> Duration {
        match self.version() {
            Version::V1 => self.envelope.settings.timeout * 2,
            Version::V2 => self.envelope.settings.timeout,
        }
    }

    pub async fn check(&self) -> Result<(), String> {
        let world: &World = &self.envelope.metrics.world;
        let mut last = self.last.lock().await;
        if let Some((found, until)) = &*last
            && world.elapsed() < *until
        {
            return found.clone();
        }
        let health = match self.version() {
            Version::V1 => ping(&self.envelope.service, &self.envelope.settings.name).await,
            Version::V2 => self.status().await,
        };
        let good_for = if health.is_ok() { GOOD_FOR } else { BAD_FOR };
        *last = Some((health.clone(), world.elapsed().saturating_add(good_for)));
        health
    }

    async fn status(&self) -> Result<(), String> {
        let name = &self.envelope.settings.name;
        let failed =
            format!("failed to perform status section of the healthz check for KMS Provider {name}, error");
        let status = self.envelope.service.status().await.map_err(|why| why.within(&failed).message)?;
        check_health(&status).map_err(|why| format!("kmsv2 Provider {name} is not healthy, error: {why}"))?;
        self.envelope.record_key_id(&status.key_id);
        Ok(())
    }
}

/// A v1 plugin is healthy if it can decrypt what it encrypts.
async fn ping(service: &Service, name: &str) -> Result<(), String> {
    let failed = |section: &str| {
        format!("failed to perform {section} section of the healthz check for KMS Provider {name}, error")
    };
    let encrypted =
        service.encrypt_v1(b"ping").await.map_err(|why| why.within(&failed("encrypt")).message)?;
    let opened = service.decrypt_v1(&encrypted.bytes).await;
    opened.map(drop).map_err(|why| why.within(&failed("decrypt")).message)
}

fn check_health(status: &StatusResponse) -> Result<(), String> {
    let mut wrong = Vec::new();
    if status.healthz != "ok" {
        wrong.push(format!("got unexpected healthz status: {}", status.healthz));
    }
    if status.version != V2 {
        wrong.push(format!("expected KMSv2 API version {V2}, got {}", status.version));
    }
    if status.key_id.is_empty() {
        wrong.push("expected KMSv2 KeyID to be set, got ".to_owned());
    }
    match &wrong[..] {
        [] => Ok(()),
        [one] => Err(one.clone()),
        more => Err(format!("[{}]", more.join(", "))),
    }
}
