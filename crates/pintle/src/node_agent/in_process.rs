//! A node for this machine, in the process of the API server.
//!
//! The agent calls the server in memory as `system:node:NAME`, and keeps its files below the data directory. It runs
//! where the process is root and there can be containers; its HTTP API has a certificate of the cluster's authority.

use super::agent_process::{AgentProcess, DnsArguments, agent_arguments};
use crate::dns::DnsService;
use crate::files;
use crate::host::host_name;
use crate::in_process::{Identity, InMemoryServer, InProcess, RunningFlag, Work, in_memory};
use crate::kubeconfig;
use crate::pki::{CertifiedKey, Hosts, NODES, issue_node_certificates};
use anyhow::Context as _;
use apiserver::Server;
use auth::User;
use client::metrics::Metrics;
use env::World;
use metrics::Registry;
use names::Names;
use nodeagent::assembly::{self, Clients, embedded_runtime};
use nodeagent::node::addresses::{AddressOptions, MachineAddresses, node_addresses};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The time before an agent that could not start is started again.
const RETRY: Duration = Duration::from_secs(10);

/// Whether a node can run on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// The socket of the container runtime.
    Ready { endpoint: String },
    /// Why not, as a sentence.
    Missing(String),
}

/// Looks for root's rights, a data directory and a container runtime: `auto`, `embedded` or the path of a socket.
pub async fn readiness(directory: Option<&Path>, runtime: &str) -> Readiness {
    let missing = |why: &str| {
        Readiness::Missing(format!(
            "No pods run on this machine: {why}. pintle up --nodes 3 has simulated nodes instead."
        ))
    };
    if directory.is_none() {
        return missing("a node needs a data directory");
    }
    if !rustix::process::geteuid().is_root() {
        return missing("a node needs root");
    }
    let endpoint = match runtime {
        "auto" => assembly::automatic_runtime().await,
        embedded_runtime::ENDPOINT => embedded_runtime::ENDPOINT.to_owned(),
        path => format!("unix://{}", path.trim_start_matches("unix://")),
    };
    match embedded_runtime::missing().filter(|_| endpoint == embedded_runtime::ENDPOINT) {
        Some(why) => missing(&format!("there is no container runtime, and {why}")),
        None => Readiness::Ready { endpoint },
    }
}

/// The files of a node below the data directory.
pub struct NodeFiles {
    directory: PathBuf,
    /// Certificate and key of the HTTP API, if the cluster has an authority of its own.
    certificate: Option<(PathBuf, PathBuf)>,
    /// The authority of the server, and the certificate for the agent's requests.
    client: Option<(String, CertifiedKey)>,
    client_authorities: Option<PathBuf>,
}

impl NodeFiles {
    /// Writes the authorities of clients, and the certificates of the node if the cluster has an authority of its own:
    /// then `server_authorities` are those of the server's certificate.
    pub fn prepare(
        data_dir: &Path,
        server_authorities: Option<String>,
        authorities: &str,
        world: &World,
    ) -> anyhow::Result<Self> {
        let directory = data_dir.join("node");
        files::private_directory(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let client_authorities = match authorities.is_empty() {
            true => None,
            false => {
                let file = directory.join("client-ca.crt");
                files::replace(&file, authorities.as_bytes())
                    .with_context(|| format!("cannot write {}", file.display()))?;
                Some(file)
            }
        };
        let mut node = NodeFiles { directory, certificate: None, client: None, client_authorities };
        if let Some(server_authorities) = server_authorities {
            let pki = data_dir.join("pki");
            let hosts = Hosts::of_node(&addresses(&node_name()));
            let client = issue_node_certificates(&pki, &user_name(), &hosts, world)?;
            node.certificate = Some((pki.join("node.crt"), pki.join("node.key")));
            node.client = Some((server_authorities, client));
        }
        Ok(node)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// Writes the kubeconfig of the node, with which `pintle nodeagent` can take the place of this agent.
    fn write_kubeconfig(&self, server: &Server) -> anyhow::Result<()> {
        let Some((authorities, pair)) = &self.client else { return Ok(()) };
        let text = kubeconfig::render_user(server.local_addr(), authorities, &user_name(), pair);
        kubeconfig::write(&self.kubeconfig(), &text)
    }

    /// The command line of the agent.
    fn arguments(&self, config: Option<&Path>, endpoint: &str) -> Vec<String> {
        let shown = |path: &Path| path.display().to_string();
        let mut arguments = agent_arguments(&self.directory, config, endpoint);
        // the agent calls the server in memory
        arguments.push(format!("--kubeconfig={}", shown(&self.kubeconfig())));
        if let Some((certificate, key)) = &self.certificate {
            arguments.push(format!("--tls-cert-file={}", shown(certificate)));
            arguments.push(format!("--tls-private-key-file={}", shown(key)));
        }
        arguments.extend(self.client_authorities.iter().map(|it| format!("--client-ca-file={}", shown(it))));
        arguments
    }
}

/// The name of this machine's node.
pub fn node_name() -> String {
    host_name().unwrap_or_else(|| "localhost".to_owned()).to_lowercase()
}

fn user_name() -> String {
    format!("system:node:{}", node_name())
}

/// The user of a node.
pub fn node_user(node: &str) -> User {
    User { groups: vec![NODES.to_owned()], ..User::named(format!("system:node:{node}")) }.authenticated()
}

/// Names and addresses of the node.
fn addresses(name: &str) -> Vec<String> {
    let options = AddressOptions { node_ips: Vec::new(), hostname: name.to_owned() };
    let found = node_addresses(&options, &MachineAddresses).unwrap_or_default();
    found.into_iter().map(|it| it.address).collect()
}

/// Runs an agent again and again.
struct AgentWork(AgentProcess);

impl Work for AgentWork {
    async fn run(&self) {
        loop {
            let message = match self.0.run_once().await {
                Ok(()) => "it ended".to_owned(),
                Err(why) => why.message,
            };
            tracing::error!(%message, "the node agent does not run; it starts again");
            env::sleep(&self.0.world, RETRY).await;
        }
    }
}

/// Starts the agent.
pub fn start(
    server: &InMemoryServer<'_>,
    names: &Names,
    files: &NodeFiles,
    (config, endpoint): (Option<&Path>, &str),
    dns: Option<&DnsService>,
    registry: Arc<Registry>,
    world: &World,
) -> InProcess {
    if let Err(why) = files.write_kubeconfig(server) {
        tracing::warn!(why = format!("{why:#}"), "the node has no kubeconfig");
    }
    let client = in_memory(server, &names.agent, None)(node_user(&node_name()));
    let work = AgentWork(AgentProcess {
        arguments: files.arguments(config, endpoint),
        dns_arguments: DnsArguments::new(dns),
        hostname: node_name(),
        clients: Some(Clients { api: client.clone(), events: client.clone() }),
        names: names.clone(),
        world: world.clone(),
        is_process: false,
        set_verbosity: Arc::new(|_| Err("the verbosity is that of the API server".to_owned())),
    });
    let identity = Identity {
        client,
        name: names.agent.to_string(),
        lease: None,
        flag: RunningFlag::new("nodeagent"),
        metrics: Metrics::new(registry),
        world: world.clone(),
        instrument: None,
    };
    InProcess::start(identity, work)
}

#[cfg(test)]
mod tests {
    use super::super::command::known_gates;
    use super::*;
    use nodeagent::configuration::{Flags, Loaded, load};

    #[test]
    fn the_command_line_is_one_that_the_agent_takes() {
        let folder = tempfile::tempdir().unwrap();
        let authority = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem();
        let world: World = env::Simulated::new(1_700_000_000, 1);
        let node = NodeFiles::prepare(folder.path(), None, &authority, &world).unwrap();
        let arguments = node.arguments(None, "unix:///run/x.sock");
        let flags = Flags::parse(&arguments).unwrap();
        let Loaded { configuration, .. } = load(&flags, &known_gates(), &Names::kubernetes()).unwrap();
        assert_eq!(configuration.text(&["authorization", "mode"]), "Webhook");
        assert!(!configuration.flag(&["authentication", "anonymous", "enabled"]));
        assert!(configuration.text(&["authentication", "x509", "clientCAFile"]).ends_with("client-ca.crt"));
        let dns = DnsService { addresses: vec!["10.0.0.10".parse().unwrap()], domain: "x.local".to_owned() };
        let added = DnsArguments::new(Some(&dns)).missing_from(&configuration);
        assert_eq!(added, ["--cluster-dns=10.0.0.10", "--cluster-domain=x.local"]);
        let flags = Flags::parse(&[&arguments[..], &added[..]].concat()).unwrap();
        let Loaded { configuration, .. } = load(&flags, &known_gates(), &Names::kubernetes()).unwrap();
        assert_eq!(configuration.texts("clusterDNS"), ["10.0.0.10"]);
        assert!(DnsArguments::new(Some(&dns)).missing_from(&configuration).is_empty());
    }

    #[tokio::test]
    async fn a_node_needs_a_data_directory() {
        let Readiness::Missing(why) = readiness(None, "auto").await else { panic!("there is no directory") };
        assert!(why.starts_with("No pods run on this machine: a node needs a data directory."), "{why}");
    }
}
