//! The agent as a part of this process: beside a server, or on a machine that has joined a cluster.

use super::command::{add_process_metrics, known_gates, limit_process, warn_of_gates};
use super::supervisor;
use crate::cni_plugin;
use crate::dns::DnsService;
use crate::host;
use env::World;
use metrics::Registry;
use names::Names;
use nodeagent::assembly::{self, Clients, Parts, RUNTIME_ENDPOINTS};
use nodeagent::configuration::{Configuration, Flags, Loaded, StartError, load};
use std::path::Path;
use std::sync::Arc;

/// Sets the verbosity of the log; the error says why not.
pub type SetVerbosity = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// See the module.
pub struct AgentProcess {
    /// The flags of the agent.
    pub arguments: Vec<String>,
    /// The flags of the cluster's DNS, each for a field that the configuration file leaves out.
    pub dns_arguments: DnsArguments,
    /// The name of the node, unless a flag sets another.
    pub hostname: String,
    /// Clients of a server in this process, instead of those of the kubeconfig.
    pub clients: Option<Clients>,
    pub names: Names,
    pub world: World,
    /// Whether the supervisor of the process, such as systemd, hears from the agent.
    pub is_process: bool,
    pub set_verbosity: SetVerbosity,
}

/// The cluster's DNS, as flags of the agent.
#[derive(Default)]
pub struct DnsArguments {
    servers: Vec<String>,
    domain: Option<String>,
}

impl DnsArguments {
    pub fn new(dns: Option<&DnsService>) -> Self {
        let servers = dns.into_iter().flat_map(|it| &it.addresses);
        DnsArguments {
            servers: servers.map(|it| format!("--cluster-dns={it}")).collect(),
            domain: dns.map(|it| format!("--cluster-domain={}", it.domain)),
        }
    }

    /// The flags for fields that a configuration does not set.
    pub(super) fn missing_from(&self, configuration: &Configuration) -> Vec<String> {
        let has_servers = !configuration.texts("clusterDNS").is_empty();
        let has_domain = !configuration.text(&["clusterDomain"]).is_empty();
        let servers = self.servers.iter().filter(|_| !has_servers);
        servers.chain(self.domain.iter().filter(|_| !has_domain)).cloned().collect()
    }
}

impl AgentProcess {
    /// Runs the agent until it fails or is dropped. Its pods go on.
    pub async fn run_once(&self) -> Result<(), StartError> {
        let flags = Flags::parse(&self.arguments)?;
        let Loaded { configuration, .. } = load(&flags, &known_gates(), &self.names)?;
        let added = self.dns_arguments.missing_from(&configuration);
        let flags = Flags::parse(&self.arguments.iter().cloned().chain(added).collect::<Vec<_>>())?;
        let Loaded { configuration, gates } = load(&flags, &known_gates(), &self.names)?;
        warn_of_gates(&configuration);
        for (field, why) in fields_of_process(&configuration, self.is_process) {
            tracing::warn!(field, why, "this field of the configuration has no effect");
        }
        if self.is_process {
            limit_process(&configuration);
        }
        let registry = Arc::new(Registry::new(metrics::Options::default()));
        add_process_metrics(&registry, &gates);
        let name = (&*self.names.agent, &*self.hostname);
        let tracer = assembly::tracer(&configuration, &gates, name, &self.world, &registry)?;
        let ended = assembly::run(Parts {
            configuration,
            gates,
            flags,
            names: self.names.clone(),
            world: self.world.clone(),
            keys: Arc::new(rcgen::KeyPair::generate),
            hostname: self.hostname.clone(),
            home: std::env::home_dir(),
            registry,
            clients: self.clients.clone(),
            command_line: host::command_line(),
            supervisor: self.is_process.then(supervisor::supervisor).flatten(),
            tracer: tracer.clone(),
            has_local_volumes: true,
            cni_plugin: Some(cni_plugin::BUILT_IN),
            set_verbosity: self.set_verbosity.clone(),
        })
        .await;
        if let Some(tracer) = tracer {
            tracer.flush().await;
        }
        ended
    }
}

/// The fields of a configuration that concern the process, which is not the agent's alone, and are set: each with why it
/// has no effect. An agent with `is_process` is beside no server.
fn fields_of_process(configuration: &Configuration, is_process: bool) -> Vec<(&'static str, &'static str)> {
    let log = ("logging", "the flags of the command set the log of the process");
    let of_server = [
        (
            "maxOpenFiles",
            "the process, which is a server too, raises its limit of open files as far as it may",
        ),
        ("oomScoreAdj", "the process is a server, too"),
    ];
    let defaults = Configuration::default();
    let of_server = of_server.into_iter().filter(|_| !is_process);
    std::iter::once(log)
        .chain(of_server)
        .filter(|(field, _)| configuration.at(&[field]) != defaults.at(&[field]))
        .collect()
}

/// The configuration of an agent beside a server or on a machine that has joined, as far as it does not depend on them.
pub fn configuration(data_dir: &Path, config: Option<&Path>) -> anyhow::Result<Configuration> {
    let directory = data_dir.join("node");
    // a runtime that is not there yet has no say in the configuration, which names one all the same
    let mut arguments = agent_arguments(&directory, config, RUNTIME_ENDPOINTS[0]);
    arguments.push(format!("--kubeconfig={}", directory.join("kubeconfig").display()));
    let loaded = Flags::parse(&arguments).and_then(|it| load(&it, &known_gates(), &Names::kubernetes()));
    loaded.map(|it| it.configuration).map_err(|why| anyhow::anyhow!("{}", why.message))
}

/// The flags of an agent that keeps its files in a directory. The kubeconfig and the certificates are not among them.
pub fn agent_arguments(directory: &Path, config: Option<&Path>, endpoint: &str) -> Vec<String> {
    let shown = |path: &Path| path.display().to_string();
    let mut arguments = vec![
        format!("--root-dir={}", shown(directory)),
        format!("--cert-dir={}", shown(&directory.join("pki"))),
        format!("--container-runtime-endpoint={endpoint}"),
        "--anonymous-auth=false".to_owned(),
        "--authentication-token-webhook=true".to_owned(),
        "--authorization-mode=Webhook".to_owned(),
    ];
    match config {
        Some(file) => arguments.push(format!("--config={}", shown(file))),
        // a machine of one's own may swap; with the rates of 1.26 it would start two pods a second
        None => arguments.extend(
            [
                "--fail-swap-on=false",
                "--kube-api-qps=50",
                "--kube-api-burst=100",
                "--event-qps=50",
                "--event-burst=100",
            ]
            .map(str::to_owned),
        ),
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Value;

    #[test]
    fn fields_of_a_process_that_others_share_are_named() {
        let fields = |configuration: &Configuration, is_process| -> Vec<&str> {
            fields_of_process(configuration, is_process).into_iter().map(|(field, _)| field).collect()
        };
        let mut given = Value::map();
        given.set(&["logging", "verbosity"], 4);
        given.set(&["maxOpenFiles"], 5000);
        given.set(&["oomScoreAdj"], -5);
        given.set(&["maxPods"], 7);
        let given = Configuration::with_defaults(given);
        assert_eq!(fields(&given, false), ["logging", "maxOpenFiles", "oomScoreAdj"]);
        assert_eq!(fields(&given, true), ["logging"]);
        assert_eq!(fields(&Configuration::default(), false), [""; 0]);
    }
}
