//! Images of containers: pull policies, credentials, delays after failures.
//!
//! | module | what it is |
//! |---|---|
//! | [`reference`] | the grammar of names |
//! | [`keyring`], [`image_match`] | credentials by image |
//! | [`docker_config`] | credentials in files of the node |
//! | [`providers`] | credentials from programs |
//! | [`pull_rate`] | pulls per second |
//! | [`collector`] | removes unused images of a full disk |

pub mod collector;
pub mod docker_config;
pub mod image_match;
pub mod keyring;
pub mod providers;
pub mod pull_rate;
pub use runtime::images::reference;

use crate::pod::backoff::{BackoffTable, go_duration};
use crate::pod::events::PodEvents;
use crate::pod::spec::ContainerSpec;
use crate::runtime::{ImageInfo, RegistryAuth, RuntimeError, SandboxConfig, SharedRuntime};
use api::core::v1::Pod;
use client::EventType;
use env::World;
use futures_util::future::BoxFuture;
use keyring::Keyring;
use parking_lot::Mutex;
use pull_rate::PullRate;
use schema::problem::quoted;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long an image that the runtime has shown is taken to be present. Pods that start at once mostly have the same image.
const SEEN_FOR: Duration = Duration::from_secs(1);

/// Credentials from outside of the cluster.
pub trait CredentialProviders: Send + Sync + 'static {
    /// Credentials for an image, best first.
    fn credentials<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Vec<RegistryAuth>>;
}

/// Why a container has no image: the reason of its status, and the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageError {
    pub reason: &'static str,
    pub message: String,
    /// When to try again, by the monotonic clock, if a delay is in force.
    pub retry_at: Option<Duration>,
}

/// Why an image was not pulled.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum PullError {
    #[error("pull QPS exceeded")]
    Rate,
    #[error("{0}")]
    Runtime(RuntimeError),
}

/// Limits of pulls. The default has none.
#[derive(Debug, Default)]
pub struct PullLimits {
    /// Pulls at once.
    pub parallel: Option<usize>,
    pub rate: Option<PullRate>,
}

/// Makes images present. One of all pods of a node.
pub struct Images {
    runtime: SharedRuntime,
    world: World,
    backoff: Mutex<BackoffTable<(String, String)>>,
    /// Images that the runtime has shown a moment ago, by name, and when.
    seen: Mutex<HashMap<String, (Duration, ImageInfo)>>,
    /// Pulls that run at once, if they are limited.
    pulls: Option<Semaphore>,
    rate: Option<PullRate>,
    providers: Option<Arc<dyn CredentialProviders>>,
}

impl Images {
    pub fn new(
        runtime: SharedRuntime,
        world: World,
        limits: PullLimits,
        providers: Option<Arc<dyn CredentialProviders>>,
    ) -> Self {
        let pulls = limits.parallel.map(Semaphore::new);
        Images {
            runtime,
            world,
            backoff: Mutex::default(),
            seen: Mutex::default(),
            pulls,
            rate: limits.rate,
            providers,
        }
    }

    /// The image of a name, if the runtime has it.
    async fn present(&self, image: &str) -> Result<Option<ImageInfo>, RuntimeError> {
        let now = self.world.elapsed();
        let is_fresh = |at: Duration| now.saturating_sub(at) < SEEN_FOR;
        if let Some((_, present)) = self.seen.lock().get(image).filter(|(at, _)| is_fresh(*at)) {
            return Ok(Some(present.clone()));
        }
        let present = self.runtime.image(image).await?;
        let mut seen = self.seen.lock();
        seen.retain(|_, (at, _)| is_fresh(*at));
        seen.extend(present.iter().map(|it| (image.to_owned(), (now, it.clone()))));
        Ok(present)
    }

    /// Forgets which images the runtime has shown, since one of them may be gone. Says whether there were any.
    pub fn forget_seen(&self) -> bool {
        !std::mem::take(&mut *self.seen.lock()).is_empty()
    }

    /// A container's image, after a pull if the policy requires one.
    pub async fn ensure(
        &self,
        pod: &Pod,
        spec: &ContainerSpec<'_>,
        keyring: &Keyring,
        sandbox: &SandboxConfig,
        events: &dyn PodEvents,
    ) -> Result<ImageInfo, ImageError> {
        let name = &*spec.container.image;
        let record = |event_type, reason: &str, message: &str| {
            events.record(pod, Some((spec.kind, &spec.container.name)), event_type, reason, message);
        };
        let fail = |reason, message: String| Err(ImageError { reason, message, retry_at: None });
        let image = match reference::with_default_tag(name) {
            Ok(image) => image,
            Err(why) => {
                let message = format!("Failed to apply default image tag {}: {why}", quoted(name));
                record(EventType::Warning, "InspectFailed", &message);
                return fail("InvalidImageName", message);
            }
        };
        let present = match self.present(&image).await {
            Ok(present) => present,
            Err(why) => {
                let message = format!("Failed to inspect image {}: {why}", quoted(name));
                record(EventType::Warning, "InspectFailed", &message);
                return fail("ImageInspectError", message);
            }
        };
        match (&*spec.container.image_pull_policy, present) {
            ("IfNotPresent" | "Never" | "", Some(present)) => {
                let message = format!("Container image {} already present on machine", quoted(name));
                record(EventType::Normal, "Pulled", &message);
                return Ok(present);
            }
            ("Never", None) => {
                let message =
                    format!("Container image {} is not present with pull policy of Never", quoted(name));
                record(EventType::Warning, "ErrImageNeverPull", &message);
                return fail("ErrImageNeverPull", message);
            }
            _ => {}
        }
        let key = (pod.metadata.uid.clone(), name.to_owned());
        let delay = self.backoff.lock().delay(&key, self.world.elapsed());
        if let Some((_, end)) = delay {
            let message = format!("Back-off pulling image {}", quoted(name));
            record(EventType::Normal, "BackOff", &message);
            return Err(ImageError { reason: "ImagePullBackOff", message, retry_at: Some(end) });
        }
        record(EventType::Normal, "Pulling", &format!("Pulling image {}", quoted(name)));
        let begin = self.world.elapsed();
        let permit = match &self.pulls {
            Some(pulls) => pulls.acquire().await.ok(),
            None => None,
        };
        let start = self.world.elapsed();
        let pulled = self.pull(&image, keyring, sandbox).await;
        drop(permit);
        let now = self.world.elapsed();
        match pulled {
            Ok(reference) => {
                let message = format!(
                    "Successfully pulled image {} in {} ({} including waiting)",
                    quoted(name),
                    go_duration(now.saturating_sub(start)),
                    go_duration(now.saturating_sub(begin))
                );
                record(EventType::Normal, "Pulled", &message);
                self.backoff.lock().collect(now);
                let present = self.runtime.image(&reference).await.ok().flatten();
                Ok(present.unwrap_or(ImageInfo { id: reference, ..ImageInfo::default() }))
            }
            Err(message) => {
                record(
                    EventType::Warning,
                    "Failed",
                    &format!("Failed to pull image {}: {message}", quoted(name)),
                );
                self.backoff.lock().advance(key, now, now);
                fail("ErrImagePull", message)
            }
        }
    }

    async fn pull(&self, image: &str, keyring: &Keyring, sandbox: &SandboxConfig) -> Result<String, String> {
        // credentials are those of a repository, whatever the tag
        let repository = reference::repository(image);
        let mut auths = keyring.lookup(&repository);
        if let Some(providers) = &self.providers {
            auths.extend(providers.credentials(&repository).await);
        }
        if auths.is_empty() {
            return self.pull_once(image, None, sandbox).await.map_err(|why| why.to_string());
        }
        let mut errors: Vec<PullError> = Vec::new();
        for auth in &auths {
            match self.pull_once(image, Some(auth), sandbox).await {
                Ok(reference) => return Ok(reference),
                Err(why) if errors.contains(&why) => {}
                Err(why) => errors.push(why),
            }
        }
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Err(if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) })
    }

    async fn pull_once(
        &self,
        image: &str,
        auth: Option<&RegistryAuth>,
        sandbox: &SandboxConfig,
    ) -> Result<String, PullError> {
        if self.rate.as_ref().is_some_and(|rate| !rate.take(self.world.elapsed())) {
            return Err(PullError::Rate);
        }
        self.runtime.pull(image, auth, sandbox).await.map_err(PullError::Runtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::simulated::SimulatedRuntime;
    use env::Simulated;

    #[tokio::test]
    async fn an_image_that_was_shown_is_present_for_a_moment() {
        let clock = Simulated::new(1_000_000_000, 1);
        let runtime = SimulatedRuntime::new(clock.clone());
        let images = Images::new(Arc::new(runtime.clone()), clock.clone(), PullLimits::default(), None);
        let is_present = async || images.present("x").await.unwrap().is_some();
        assert!(is_present().await);
        runtime.remove_from_registry("x");
        clock.advance(SEEN_FOR / 2);
        assert!(is_present().await);
        clock.advance(SEEN_FOR / 2);
        assert!(!is_present().await, "from when the runtime has shown it");
        assert!(!images.forget_seen());
        runtime.remove_from_registry("y");
        assert!(images.present("z").await.unwrap().is_some() && !is_present().await);
        assert!(images.forget_seen() && !images.forget_seen());
    }
}
