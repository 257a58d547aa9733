//! A proxy from its configuration: the settings of its rules, its ports, and its run.

use super::profiles;
use crate::cli::version;
use crate::host::host_name;
use crate::options::gates;
use anyhow::Context as _;
use client::Client;
use env::World;
use metrics::Registry;
use names::Names;
use network::http_server::{Answer, Respond, listen, serve};
use network::netfilter::Family;
use network::proxy::configuration::Configuration;
use network::proxy::health::ProxyHealth;
use network::proxy::kernel_settings;
use network::proxy::metrics::Metrics;
use network::proxy::proxy_events::ProxyEvents;
use network::proxy::run::{self, Options};
use std::path::Path;
use std::sync::Arc;

/// The mode in answers and warnings.
const MODE: &str = "nftables";

/// A proxy that is ready to run.
pub struct ServiceProxy {
    configuration: Configuration,
    options: Options,
    names: Names,
    registry: Arc<Registry>,
}

impl ServiceProxy {
    pub fn new(configuration: Configuration, names: &Names, registry: Arc<Registry>, world: &World) -> Self {
        let node_name = match configuration.text("hostnameOverride").trim() {
            "" => host_name().unwrap_or_else(|| "localhost".to_owned()),
            name => name.to_owned(),
        };
        // upstream's proxy is unhealthy when it is two periods late
        let sync_period = configuration.duration("iptables.syncPeriod");
        let health = Arc::new(ProxyHealth::new(world.clone(), sync_period * 2));
        let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
        let gate = |name: &str| {
            let default = gates::all().find(|gate| gate.name == name).is_some_and(|gate| gate.open);
            configuration.gate(name).unwrap_or(default)
        };
        let options = Options {
            names: names.clone(),
            node_name: node_name.to_lowercase(),
            families: [Family::Ipv4].into_iter().chain(has_ipv6.then_some(Family::Ipv6)).collect(),
            has_masquerade_all: configuration.bool("iptables.masqueradeAll"),
            masquerade_mark: 1 << (configuration.int("iptables.masqueradeBit") & 31),
            detect_local: configuration.detect_local(),
            node_port_networks: configuration.node_port_networks(),
            has_localhost_node_ports: configuration.bool("iptables.localhostNodePorts"),
            has_terminating_fallback: gate("ProxyTerminatingEndpoints"),
            sync_period,
            metrics: Metrics::new(&registry),
            health,
        };
        ServiceProxy { configuration, options, names: names.clone(), registry }
    }

    /// Opens the ports of health and metrics. Without `bindAddressHardFail`, a port that is taken is logged.
    pub async fn open_ports(&self, client: &Client, world: &World) -> anyhow::Result<()> {
        let health = self.options.health.clone();
        let healthz: Respond = Arc::new(move |path| match path {
            "/healthz" => health.answer(),
            _ => Answer::not_found(),
        });
        if let Err(why) = self.open_port("healthzBindAddress", healthz).await {
            let events =
                ProxyEvents::new(client.clone(), world.clone(), &self.names, &self.options.node_name);
            events.record_health_failure(&format!("{why:#}"));
            self.check_open(why)?;
        }
        match self.open_port("metricsBindAddress", self.metrics_pages()).await {
            Err(why) => self.check_open(why),
            Ok(()) => Ok(()),
        }
    }

    /// Whether a port that cannot be opened ends the proxy.
    fn check_open(&self, why: anyhow::Error) -> anyhow::Result<()> {
        if self.configuration.bool("bindAddressHardFail") {
            return Err(why);
        }
        tracing::error!(why = format!("{why:#}"), "cannot open a port of the service proxy");
        Ok(())
    }

    async fn open_port(&self, field: &'static str, respond: Respond) -> anyhow::Result<()> {
        let Some(address) = self.configuration.address(field) else { return Ok(()) };
        let listener =
            listen(address).await.with_context(|| format!("{field}: cannot listen on {address}"))?;
        tokio::spawn(serve(listener, respond));
        Ok(())
    }

    fn metrics_pages(&self) -> Respond {
        let registry = self.registry.clone();
        let has_profiles = self.configuration.bool("enableProfiling");
        let mut configz = schema::Value::map();
        let group = self.names.group(&format!("{}proxy.config", self.names.prefix));
        configz.make_map().insert(group, self.configuration.to_value(&self.names));
        let configz = String::from_utf8_lossy(&schema::encode::untyped(&configz)).into_owned();
        Arc::new(move |path| match path {
            "/metrics" => Answer::text(registry.text()),
            "/healthz" => Answer::text("ok"),
            "/proxyMode" => Answer::text(MODE),
            "/configz" => Answer::json(http::StatusCode::OK, configz.clone()),
            path => match path.strip_prefix("/debug/pprof") {
                Some(page) if has_profiles => profiles::profile(page),
                _ => Answer::not_found(),
            },
        })
    }

    pub fn node_name(&self) -> &str {
        &self.options.node_name
    }

    pub fn families(&self) -> &[Family] {
        &self.options.families
    }

    /// Follows services and writes their rules, until an error that repeating does not cure.
    pub async fn run(&self, client: Client, world: World) -> anyhow::Result<()> {
        tracing::info!(version = version(), node = self.options.node_name, "the service proxy starts");
        let mode = self.configuration.text("mode");
        if !matches!(mode, "" | MODE) {
            tracing::warn!(mode, "rules are written by nftables, in every mode");
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let settings = kernel_settings::kernel_settings(&self.configuration, cpus);
        kernel_settings::apply(Path::new("/proc/sys/net"), &settings);
        run::run(client, world, self.options.clone()).await.context("cannot write packet filter rules")
    }
}
