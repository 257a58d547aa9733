//! All providers of a configuration, by where the objects of their resources are kept.
//!
//! What always holds: whoever looks sees one configuration whole, and waits for nobody. A resource that a new
//! configuration no longer names is still looked after: its values are in the clear from then on.

use crate::chain::{Chain, Provider};
use crate::configuration::{Configuration, ProviderSettings};
use crate::kms::{Envelope, Probe, Version};
use crate::metrics::Measures;
use arc_swap::ArcSwap;
use env::World;
use metrics::Registry;
use names::Names;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where the objects of a resource are kept, by its name and group: what their keys in the store begin with.
pub type Locate = Box<dyn Fn(&str, &str) -> String + Send + Sync>;

/// What a key is called in the store behind, to which values are bound.
pub type Rename = Box<dyn Fn(&str) -> String + Send + Sync>;

/// What a keyring is made of besides a configuration.
pub struct Parts<'a> {
    pub world: World,
    pub registry: &'a Registry,
    pub names: &'a Names,
    pub locate: Locate,
    /// Where keys are not called there what they are called here.
    pub rename: Option<Rename>,
    /// Whether configurations come one after the other, so that health is told for all key servers together.
    pub reloads: bool,
}

/// See the module.
pub struct Keyring {
    current: ArcSwap<Plan>,
    pub(crate) measures: Arc<Measures>,
    reserved: Arc<str>,
    locate: Locate,
    rename: Option<Rename>,
    reloads: bool,
}

/// One configuration.
#[derive(Default)]
pub(crate) struct Plan {
    /// By what keys begin with, in order; none begins with another.
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

    /// Whether all key servers are well; else what is wrong with which.
    pub async fn well(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        for (at, probe) in self.probes.iter().enumerate() {
            if let Err(why) = probe.look().await {
                wrong.push(format!("kms-provider-{at}: {why}"));
            }
        }
        match &wrong[..] {
            [] => Ok(()),
            [one] => Err(one.clone()),
            more => Err(format!("[{}]", more.join(", "))),
        }
    }

    /// How long it may take to find that out.
    pub fn longest_look(&self) -> Duration {
        self.probes.iter().map(|probe| probe.longest()).sum()
    }
}

impl Keyring {
    /// Nothing is configured: nothing is sealed, and nothing that is sealed can be opened.
    pub fn empty(parts: Parts<'_>) -> Self {
        Keyring {
            current: ArcSwap::default(),
            measures: Arc::new(Measures::new(parts.registry, parts.world)),
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

    /// What a configuration comes to here.
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
                let envelope = Arc::new(Envelope::new(settings, &self.measures));
                probes.push(Arc::new(Probe::new(envelope.clone())));
                Provider::server(settings, &self.reserved, envelope)
            }
        }
    }

    pub(crate) fn current(&self) -> Arc<Plan> {
        self.current.load_full()
    }

    pub(crate) fn exchange(&self, plan: Plan) {
        self.current.store(Arc::new(plan));
    }

    /// What a key is called in the store behind.
    pub(crate) fn bound<'k>(&self, key: &'k str) -> Cow<'k, str> {
        self.rename.as_ref().map_or(Cow::Borrowed(key), |rename| rename(key).into())
    }

    /// What sealed values begin with.
    pub(crate) fn reserved(&self) -> &Arc<str> {
        &self.reserved
    }

    /// What the health checks of key servers are called, in order.
    pub fn checks(&self) -> Vec<String> {
        let plan = self.current.load();
        let any = |version: Version| plan.probes.iter().any(|probe| probe.version() == version);
        if self.reloads || any(Version::V2) && !any(Version::V1) {
            return vec![TOGETHER.to_owned()];
        }
        (0..plan.probes.len()).map(|at| format!("kms-provider-{at}")).collect()
    }

    /// How the check at a place went.
    pub async fn check(&self, at: usize) -> Result<(), String> {
        let (plan, together) = (self.current(), self.checks().first().is_some_and(|it| it == TOGETHER));
        match plan.probes.get(at) {
            _ if together => plan.well().await,
            Some(probe) => probe.look().await,
            None => Ok(()),
        }
    }
}

const TOGETHER: &str = "kms-providers";
