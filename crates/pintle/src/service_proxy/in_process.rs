//! The service proxy of this machine, in the process of the API server. It calls the server in memory, as the user whom
//! the bootstrap policy allows to.
//!
//! Network policies are enforced beside it as a user of their own, and free ports are offered to services of type
//! LoadBalancer as the machine's node.

use super::assembly::ServiceProxy;
use crate::bootstrap::component_roles;
use crate::in_process::{Identity, InMemoryServer, InProcess, RunningFlag, Work, in_memory};
use crate::node_agent::node_user;
use crate::options::{ConfigErrors, read_config};
use auth::User;
use client::Client;
use client::metrics::Metrics;
use env::World;
use metrics::Registry;
use names::Names;
use network::proxy::configuration::{Configuration, Flags};
use network::{load_balancer, policy};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time before a proxy that could not start is started again.
const RETRY: Duration = Duration::from_secs(10);
const GRANT_RETRY: Duration = Duration::from_secs(1);

struct ProxyWork {
    proxy: ServiceProxy,
    client: Client,
    /// Reads policies and what they select.
    policies: Client,
    /// Reads services, and writes the ports that the node offers.
    node: Client,
    world: World,
}

/// Runs the proxy of a machine that has joined a cluster, and enforces network policies there.
pub async fn run_on_node(client: Client, node: &str, names: &Names, world: &World) -> anyhow::Error {
    // pods of this node are those of its range
    let arguments = [format!("--hostname-override={node}"), "--detect-local-mode=NodeCIDR".to_owned()];
    let read = Flags::parse(&arguments).and_then(|flags| Configuration::load(&flags, None, names));
    let configuration = match read {
        Ok(configuration) => configuration,
        Err(mistakes) => return anyhow::anyhow!("the service proxy: {}", mistakes.join(", ")),
    };
    let registry = Arc::new(Registry::new(metrics::Options::default()));
    let proxy = ServiceProxy::new(configuration, names, registry, world);
    let work =
        ProxyWork { proxy, policies: client.clone(), node: client.clone(), client, world: world.clone() };
    if let Err(why) = work.proxy.open_ports(&work.client, world).await {
        return why.context("the service proxy");
    }
    tokio::join!(work.serve(), work.enforce_policies(), work.offer_ports());
    anyhow::anyhow!("the service proxy ended")
}

impl ProxyWork {
    async fn serve(&self) {
        loop {
            if let Err(why) = self.proxy.run(self.client.clone(), self.world.clone()).await {
                let why = format!("{why:#}");
                tracing::error!(why, "the service proxy does not run; it starts again");
            }
            env::sleep(&self.world, RETRY).await;
        }
    }

    async fn enforce_policies(&self) {
        loop {
            let (client, world) = (self.policies.clone(), self.world.clone());
            let (node, families) = (self.proxy.node_name().to_owned(), self.proxy.families().to_vec());
            if let Err(why) = policy::run::run(client, world, node, families).await {
                tracing::error!(%why, "network policies are not enforced; trying again");
            }
            env::sleep(&self.world, RETRY).await;
        }
    }

    async fn offer_ports(&self) {
        let node = self.proxy.node_name().to_owned();
        load_balancer::run(self.node.clone(), self.world.clone(), node).await;
    }
}

/// The proxy beside the API server.
struct InProcessWork {
    proxy: ProxyWork,
    /// Grants the user of network policies its rights.
    admin: Client,
    names: Names,
}

impl InProcessWork {
    async fn grant(&self) {
        while let Err(why) = component_roles::grant_policies(&self.admin, &self.names).await {
            tracing::warn!(%why, "cannot write the role of network policies; trying again");
            env::sleep(&self.proxy.world, GRANT_RETRY).await;
        }
    }
}

impl Work for InProcessWork {
    async fn run(&self) {
        let work = &self.proxy;
        if let Err(why) = work.proxy.open_ports(&work.client, &work.world).await {
            tracing::error!(why = format!("{why:#}"), "the service proxy has no ports");
        }
        let policies = async {
            self.grant().await;
            work.enforce_policies().await;
        };
        tokio::join!(work.serve(), policies, work.offer_ports());
    }
}

/// The configuration of a file, or the default one with the networks of pods.
pub fn configuration(
    file: Option<&Path>,
    pod_networks: &str,
    names: &Names,
    errors: &mut ConfigErrors,
) -> Option<Configuration> {
    const OPTION: &str = "--proxy-config";
    let text = match file {
        Some(file) => Some(read_config(OPTION, file, errors)?),
        None => None,
    };
    let networks = (!pod_networks.is_empty()).then(|| format!("--cluster-cidr={pod_networks}"));
    let arguments: Vec<String> = networks.into_iter().collect();
    let read = Flags::parse(&arguments).and_then(|flags| Configuration::load(&flags, text.as_deref(), names));
    match read {
        Ok(configuration) => Some(configuration),
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| errors.add(OPTION, mistake));
            None
        }
    }
}

/// Starts the proxy.
pub fn start(
    server: &InMemoryServer<'_>,
    names: &Names,
    configuration: Configuration,
    registry: Arc<Registry>,
    world: &World,
) -> InProcess {
    let agent = format!("{}-proxy", names.prefix);
    let user = User::named(format!("system:{agent}")).authenticated();
    let as_user = in_memory(server, &agent, None);
    let client = as_user(user);
    let admin = User { groups: vec![auth::MASTERS.to_owned()], ..User::named("system:apiserver") };
    let proxy = ServiceProxy::new(configuration, names, registry.clone(), world);
    let policies = as_user(User::named(component_roles::POLICIES_USER).authenticated());
    let node = as_user(node_user(proxy.node_name()));
    let work = InProcessWork {
        proxy: ProxyWork { proxy, client: client.clone(), policies, node, world: world.clone() },
        admin: as_user(admin.authenticated()),
        names: names.clone(),
    };
    let identity = Identity {
        client,
        name: agent,
        lease: None,
        flag: RunningFlag::new("proxy"),
        metrics: Metrics::new(registry),
        world: world.clone(),
        instrument: None,
    };
    InProcess::start(identity, work)
}
