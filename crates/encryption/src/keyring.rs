//! All providers of a configuration, by the key prefixes of their resources.
//!
//! Invariants: a reader sees one whole configuration, without waiting. A resource that a new configuration no
//! longer names stays covered: its values are written as plaintext from then on.

use crate::chain::{Chain, Provider};
use crate::configuration::{Configuration, ProviderSettings};
use crate::kms::{Envelope, Probe, Version};
use crate::metrics::EncryptionMetrics;
use arc_swap::ArcSwap;
use env::World;
use metrics::Registry;
use names::Names;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The key prefix of a resource's objects in the store, by its name and group.
pub type Locate = Box<dyn Fn(&str, &str) -> String + Send + Sync>;

/// The name of a key in the underlying store, to which ciphertexts are bound.
pub type Rename = Box<dyn Fn(&str) -> String + Send + Sync>;

/// The dependencies of a keyring.
pub struct Parts<'a> {
    pub world: World,
    pub registry: &'a Registry,
    pub names: &'a Names,
    pub locate: Locate,
    /// The mapping of keys, if the underlying store names them differently.
    pub rename: Option<Rename>,
    /// Whether the configuration is reloaded; then one health check covers all KMS providers.
    pub reloads: bool,
}

/// See the module.
pub struct Keyring {
    pub(crate) world: World,
    current: ArcSwap<Plan>,
    pub(crate) metrics: Arc<EncryptionMetrics>,
    reserved: Arc<str>,
    locate: Locate,
    rename: Option<Rename>,
    reloads: bool,
}

/// The providers of one configuration.
#[derive(Default)]
pub(crate) struct Plan {
    /// Sorted by key prefix; no prefix begins with another.
    chains: Vec<(Box<str>, Arc<Chain>)>,
    probes: Vec<Arc<Probe>>,
}

impl Plan {
    /// The providers of a key.
    pub fn of(&self, key: &str) -> Option<&Arc<Chain>> {
        let after = self.chains.partition_point(|(prefix, _)| **prefix <= *key);
        let (prefix, chain) = self.chains[..after].last()?;
        key.starts_with(&**prefix).then_some(chain)
    }

    /// Checks that all KMS providers are healthy, and reports which are not.
    pub async fn check_health(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        for (at, probe) in self.probes.iter().enumerate() {
            if let Err(why) = probe.check().await {
                wrong.push(format!("kms-provider-{at}: {why}"));
            }
        }
        match &wrong[..] {
            [] => Ok(()),
            [one] => Err(one.clone()),
            more => Err(format!("[{}]", more.join(", "))),
        }
    }

    /// The longest time that [`Self::check_health`] may take.
    pub fn check_timeout(&self) -> Duration {
        self.probes.iter().map(|probe| probe.check_timeout()).sum()
    }
}

impl Keyring {
    /// A keyring without a configuration: nothing is encrypted, and nothing can be decrypted.
    pub fn empty(parts: Parts<'_>) -> Self {
        Keyring {
            current: ArcSwap::default(),
            metrics: Arc::new(EncryptionMetrics::new(parts.registry, parts.world.clone())),
            world: parts.world,
            reserved: parts.names.sealed_prefix().into(),
            locate: parts.locate,
            rename: parts.rename,
            reloads: parts.reloads,
        }
    }

    pub fn new(configuration: &Configuration, parts: Parts<'_>) -> Self {
        let keyring = Keyring::empty(parts);
        let plan = keyring.plan(configuration);
        keyring.current.store(Arc::new(plan));
        keyring
    }

    /// Builds the providers of a configuration.
    pub(crate) fn plan(&self, configuration: &Configuration) -> Plan {
        let mut by_resource: BTreeMap<String, Vec<Arc<Provider>>> = BTreeMap::new();
        let mut probes = Vec::new();
        for entry in &configuration.entries {
            let providers: Vec<_> = entry
                .providers
                .iter()
                .map(|settings| Arc::new(self.provider(settings, &mut probes)))
                .collect();
            for (resource, group) in &entry.resources {
                let prefix = (self.locate)(resource, group);
                by_resource.entry(prefix).or_default().extend(providers.iter().cloned());
            }
        }
        let before = self.current.load();
        for (prefix, _) in &before.chains {
            by_resource.entry(prefix.to_string()).or_insert_with(|| vec![Arc::new(Provider::Identity)]);
        }
        let chain = |(prefix, providers): (String, _)| {
            (prefix.into(), Arc::new(Chain { providers, reserved: self.reserved.clone() }))
        };
        Plan { chains: by_resource.into_iter().map(chain).collect(), probes }
    }

    fn provider(&self, settings: &ProviderSettings, probes: &mut Vec<Arc<Probe>>) -> Provider {
        match settings {
            ProviderSettings::Identity => Provider::Identity,
            ProviderSettings::Keys(family, keys) => Provider::keys(*family, keys, &self.reserved),
            ProviderSettings::Server(settings) => {
                let envelope = Arc::new(Envelope::new(settings, &self.metrics));
                probes.push(Arc::new(Probe::new(envelope.clone())));
                Provider::server(settings, &self.reserved, envelope)
            }
        }
    }

    pub(crate) fn current(&self) -> Arc<Plan> {
        self.current.load_full()
    }

    pub(crate) fn replace(&self, plan: Plan) {
        self.current.store(Arc::new(plan));
    }

    /// The name of a key in the underlying store.
    pub(crate) fn underlying_key<'k>(&self, key: &'k str) -> Cow<'k, str> {
        self.rename.as_ref().map_or(Cow::Borrowed(key), |rename| rename(key).into())
    }

    /// The prefix of encrypted values.
    pub(crate) fn reserved(&self) -> &Arc<str> {
        &self.reserved
    }

    /// Names of the KMS providers' health checks, in order.
    pub fn checks(&self) -> Vec<String> {
        let plan = self.current.load();
        let any = |version: Version| plan.probes.iter().any(|probe| probe.version() == version);
        if self.reloads || any(Version::V2) && !any(Version::V1) {
            return vec![TOGETHER.to_owned()];
        }
        (0..plan.probes.len()).map(|at| format!("kms-provider-{at}")).collect()
    }

    /// Runs the health check at an index.
    pub async fn check(&self, at: usize) -> Result<(), String> {
        let (plan, together) = (self.current(), self.checks().first().is_some_and(|it| it == TOGETHER));
        match plan.probes.get(at) {
            _ if together => plan.check_health().await,
            Some(probe) => probe.check().await,
            None => Ok(()),
        }
    }
}

const TOGETHER: &str = "kms-providers";
