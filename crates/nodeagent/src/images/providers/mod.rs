//! Credential providers: programs that know the credentials of registries.
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | the configuration file |
//! | [`plugin`] | the protocol with a program |
//!
//! A program runs for images that its patterns cover. Its answer is kept for the image, for its registry or for all
//! images, as long as the answer says. Requests for the same image wait for one run.

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
use plugin::{CacheKeyType, ProviderAnswer};
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
    /// Answers by key, and until when they are good. Held while the program runs.
    cache: tokio::sync::Mutex<HashMap<String, (ProviderAnswer, Duration)>>,
}

impl ProviderSet {
    pub fn new(
        configs: Vec<ProviderConfig>,
        files: DockerConfig,
        world: World,
        metrics: AgentMetrics,
    ) -> Self {
        configs.iter().for_each(|config| metrics.provider_known(&config.name));
        let provider = |config| Provider { config, cache: tokio::sync::Mutex::default() };
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

impl Provider {
    async fn credentials(
        &self,
        image: &str,
        world: &World,
        metrics: &AgentMetrics,
    ) -> Vec<(String, RegistryAuth)> {
        if !self.config.match_images.iter().any(|pattern| is_match(pattern, image) == Ok(true)) {
            return Vec::new();
        }
        let registry = image.split('/').next().unwrap_or_default();
        let mut cache = self.cache.lock().await;
        let now = world.elapsed();
        cache.retain(|_, (_, until)| now < *until);
        if let Some((answer, _)) = [image, registry, GLOBAL].iter().find_map(|key| cache.get(*key)) {
            return answer.auths.clone();
        }
        let answered = env::timeout(world, plugin::TIMEOUT, plugin::run(&self.config, image)).await;
        let time = world.elapsed().saturating_sub(now);
        metrics.credentials_fetched(&self.config.name, time, matches!(answered, Ok(Ok(_))));
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
            CacheKeyType::Registry => registry,
            CacheKeyType::Global => GLOBAL,
        };
        let lifetime = answer.cache.unwrap_or(self.config.default_cache);
        let auths = answer.auths.clone();
        if !lifetime.is_zero() {
            cache.insert(key.to_owned(), (answer, now.saturating_add(lifetime)));
        }
        auths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write_program;
    use env::Simulated;
    use std::path::{Path, PathBuf};

    /// A provider that logs its requests.
    fn provider(dir: &Path, answer: &str) -> ProviderConfig {
        let program = dir.join("provider");
        let log = dir.join("log");
        let script = format!("cat >> {}\necho \"$1 $X\" >> {0}\ncat <<'EOF'\n{answer}\nEOF\n", log.display());
        write_program(&program, &script);
        ProviderConfig {
            name: "provider".to_owned(),
            program,
            match_images: vec!["*.test".to_owned()],
            default_cache: Duration::ZERO,
            api_version: "g/v1".to_owned(),
            args: vec!["two words".to_owned()],
            env: vec![("X".to_owned(), "from-config".to_owned())],
        }
    }

    fn answer(key: &str, cache: &str, host: &str) -> String {
        format!(
            r#"{{"kind":"CredentialProviderResponse","apiVersion":"g/v1","cacheKeyType":"{key}","cacheDuration":"{cache}","auth":{{"{host}":{{"username":"u","password":"p"}}}}}}"#
        )
    }

    fn requests(log: PathBuf) -> usize {
        std::fs::read_to_string(log).unwrap_or_default().lines().count() / 2
    }

    #[tokio::test]
    async fn answers_are_kept_as_long_as_they_say() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Simulated::new(1_700_000_000, 1);
        let config = provider(dir.path(), &answer("Registry", "10m", "a.test"));
        let set =
            ProviderSet::new(vec![config], DockerConfig::default(), clock.clone(), AgentMetrics::default());
        let get = async |image: &str| set.credentials(image).await.len();
        assert_eq!(get("a.test/x").await, 1);
        let log = dir.path().join("log");
        let text = std::fs::read_to_string(&log).unwrap();
        let request =
            "{\"apiVersion\":\"g/v1\",\"image\":\"a.test/x\",\"kind\":\"CredentialProviderRequest\"}\n";
        assert_eq!(text, format!("{request}two words from-config\n"));
        assert_eq!(get("a.test/y").await, 1);
        assert_eq!(get("other/y").await, 0);
        assert_eq!(requests(log.clone()), 1);
        clock.advance(Duration::from_secs(601));
        assert_eq!(get("a.test/y").await, 1);
        assert_eq!(requests(log), 2);
    }

    #[tokio::test]
    async fn answers_for_other_hosts_and_failures_give_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let check = async |text: &str, expected: usize| {
            let configs = vec![provider(dir.path(), text)];
            let clock = Simulated::new(1_700_000_000, 1);
            let set = ProviderSet::new(configs, DockerConfig::default(), clock, AgentMetrics::default());
            assert_eq!(set.credentials("a.test/x").await.len(), expected, "{text}");
        };
        check(&answer("Image", "0s", "other.test"), 0).await;
        check(&answer("Image", "0s", "*.test"), 1).await;
        check("not json", 0).await;
        check("", 0).await;
    }
}
