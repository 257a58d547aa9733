//! Whether a key server is well, asked no more often than every few seconds.

use super::service::{Service, Status, V2};
use super::{Envelope, Version};
use env::World;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// For how long a good answer and a bad one are believed.
const GOOD_FOR: Duration = Duration::from_secs(20);
const BAD_FOR: Duration = Duration::from_secs(3);

/// See the module.
pub(crate) struct Probe {
    envelope: Arc<Envelope>,
    /// What was found, and until when that is believed.
    last: Mutex<Option<(Result<(), String>, Duration)>>,
}

impl Probe {
    pub fn new(envelope: Arc<Envelope>) -> Self {
        Probe { envelope, last: Mutex::new(None) }
    }

    pub fn version(&self) -> Version {
        self.envelope.settings.version
    }

    /// How long a look may take.
    pub fn longest(&self) -> Duration {
        match self.version() {
            Version::V1 => self.envelope.settings.timeout * 2,
            Version::V2 => self.envelope.settings.timeout,
        }
    }

    pub async fn look(&self) -> Result<(), String> {
        let world: &World = &self.envelope.measures.world;
        let mut last = self.last.lock().await;
        if let Some((found, until)) = &*last
            && world.elapsed() < *until
        {
            return found.clone();
        }
        let found = match self.version() {
            Version::V1 => ping(&self.envelope.service, &self.envelope.settings.name).await,
            Version::V2 => self.status().await,
        };
        let good_for = if found.is_ok() { GOOD_FOR } else { BAD_FOR };
        *last = Some((found.clone(), world.elapsed().saturating_add(good_for)));
        found
    }

    async fn status(&self) -> Result<(), String> {
        let name = &self.envelope.settings.name;
        let failed =
            format!("failed to perform status section of the healthz check for KMS Provider {name}, error");
        let status = self.envelope.service.status().await.map_err(|why| why.within(&failed).message)?;
        well(&status).map_err(|why| format!("kmsv2 Provider {name} is not healthy, error: {why}"))?;
        self.envelope.saw(&status.key_id);
        Ok(())
    }
}

/// Servers of the first version are well if they can open what they seal.
async fn ping(service: &Service, name: &str) -> Result<(), String> {
    let failed = |section: &str| {
        format!("failed to perform {section} section of the healthz check for KMS Provider {name}, error")
    };
    let sealed = service.encrypt_v1(b"ping").await.map_err(|why| why.within(&failed("encrypt")).message)?;
    let opened = service.decrypt_v1(&sealed.bytes).await;
    opened.map(drop).map_err(|why| why.within(&failed("decrypt")).message)
}

fn well(status: &Status) -> Result<(), String> {
    let mut wrong = Vec::new();
    if status.health != "ok" {
        wrong.push(format!("got unexpected healthz status: {}", status.health));
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
