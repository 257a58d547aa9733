//! Credential providers: programs that know the credentials of registries.
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | the configuration file |
//! | [`plugin`] | the protocol with a program |
//!
//! A program runs for images that its patterns cover. Its answer is kept for the image, for its registry or for all
//! images, as long as the answer says. Requests for the same image wait for one run; those for others do not wait for it.

pub mod config;
pub mod plugin;

use crate::images::CredentialProviders;
use crate::images::docker_config::DockerConfig;
use crate::images::image_match::is_match;
use crate::images::keyring::Keyring;
use crate::runtime::RegistryAuth;
use crate::stats::AgentMetrics;
use config::ProviderConfig;
use env::World;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use outbound::SingleFlight;
use parking_lot::Mutex;
use plugin::CacheKeyType;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::time::Duration;

/// The key of answers for all images.
const GLOBAL: &str = "global";

/// The providers of a configuration, and the files of the node.
pub struct ProviderSet {
    providers: Vec<Provider>,
    files: DockerConfig,
    world: World,
    metrics: AgentMetrics,
}

struct Provider {
    config: ProviderConfig,
    /// Credentials by the key of their answer, and until when they are good.
    cache: Mutex<HashMap<String, (Credentials, Duration)>>,
    /// The runs of the program, by image.
    runs: SingleFlight<Credentials>,
}

/// Credentials by pattern of images.
type Credentials = Vec<(String, RegistryAuth)>;

impl ProviderSet {
    pub fn new(
        configs: Vec<ProviderConfig>,
        files: DockerConfig,
        world: World,
        metrics: AgentMetrics,
    ) -> Self {
        configs.iter().for_each(|config| metrics.provider_known(&config.name));
        let provider = |config| Provider { config, cache: Mutex::default(), runs: SingleFlight::default() };
        ProviderSet { providers: configs.into_iter().map(provider).collect(), files, world, metrics }
    }
}

impl CredentialProviders for ProviderSet {
    fn credentials<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Vec<RegistryAuth>> {
        async move {
            let mut keyring = Keyring::default();
            self.files.add_to(&mut keyring);
            for provider in &self.providers {
                for (pattern, auth) in provider.credentials(image, &self.world, &self.metrics).await {
                    keyring.add_auth(&pattern, auth);
                }
            }
            keyring.lookup(image)
        }
        .boxed()
    }
}

/// The registry of an image.
fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or_default()
}

impl Provider {
    async fn credentials(&self, image: &str, world: &World, metrics: &AgentMetrics) -> Credentials {
        if !self.config.match_images.iter().any(|pattern| is_match(pattern, image) == Ok(true)) {
            return Vec::new();
        }
        if let Some(known) = self.cached(image, world.elapsed()) {
            return known;
        }
        let ask = async {
            // a run may have ended since
            match self.cached(image, world.elapsed()) {
                Some(known) => known,
                None => self.run(image, world, metrics).await,
            }
        };
        self.runs.ask(Sha256::digest(image.as_bytes()).into(), ask).await
    }

    /// What an earlier answer said about an image.
    fn cached(&self, image: &str, now: Duration) -> Option<Credentials> {
        let mut cache = self.cache.lock();
        cache.retain(|_, (_, until)| now < *until);
        [image, registry(image), GLOBAL].iter().find_map(|key| cache.get(*key)).map(|it| it.0.clone())
    }

    /// Runs the program, and keeps its answer.
    async fn run(&self, image: &str, world: &World, metrics: &AgentMetrics) -> Credentials {
        let begun = world.elapsed();
        let answered = env::timeout(world, plugin::TIMEOUT, plugin::run(&self.config, image)).await;
        let now = world.elapsed();
        let is_answered = matches!(answered, Ok(Ok(_)));
        metrics.credentials_fetched(&self.config.name, now.saturating_sub(begun), is_answered);
        let answer = match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::error!(%error, provider = self.config.name, "Failed getting credential from external registry credential provider");
                return Vec::new();
            }
            Err(_) => {
                tracing::error!(provider = self.config.name, image, "the credential provider timed out");
                return Vec::new();
            }
        };
        let key = match answer.key_type {
            CacheKeyType::Image => image,
            CacheKeyType::Registry => registry(image),
            CacheKeyType::Global => GLOBAL,
        };
        let lifetime = answer.cache.unwrap_or(self.config.default_cache);
        if !lifetime.is_zero() {
            let kept = (answer.auths.clone(), now.saturating_add(lifetime));
            self.cache.lock().insert(key.to_owned(), kept);
        }
        answer.auths
    }
}

#[cfg(test)]
mod tests;
