//! The service proxy of this machine, in the process of the API server. It calls the server in memory, as the user whom
//! the bootstrap policy allows to.
//!
//! Network policies are enforced beside it, and free ports are offered to services of type LoadBalancer; the user of the
//! proxy may not do either, so these call the server as its administrator, or as the node of a machine that has joined.

use super::assembly::ServiceProxy;
use crate::in_process::{Identity, InProcess, RunningFlag, Work, in_memory};
use crate::options::{ConfigErrors, read_config};
use apiserver::Server;
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

struct ProxyWork {
    proxy: ServiceProxy,
    client: Client,
    /// Reads policies and what they select, and writes the ports that the node offers.
    admin: Client,
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
    let work = ProxyWork { proxy, client: client.clone(), admin: client, world: world.clone() };
    if let Err(why) = work.proxy.open_ports().await {
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
            let (client, world) = (self.admin.clone(), self.world.clone());
            let (node, families) = (self.proxy.node_name().to_owned(), self.proxy.families().to_vec());
            if let Err(why) = policy::run::run(client, world, node, families).await {
                tracing::error!(%why, "network policies are not enforced; trying again");
            }
            env::sleep(&self.world, RETRY).await;
        }
    }
}

impl ProxyWork {
    async fn offer_ports(&self) {
        let node = self.proxy.node_name().to_owned();
        load_balancer::run(self.admin.clone(), self.world.clone(), node).await;
    }
}

impl Work for ProxyWork {
    async fn run(&self) {
        if let Err(why) = self.proxy.open_ports().await {
            tracing::error!(why = format!("{why:#}"), "the service proxy has no ports");
        }
        tokio::join!(self.serve(), self.enforce_policies(), self.offer_ports());
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
    server: &Server,
    names: &Names,
    configuration: Configuration,
    registry: Arc<Registry>,
    world: &World,
) -> InProcess {
    let agent = format!("{}-proxy", names.prefix);
    let user = User::named(format!("system:{agent}")).authenticated();
    let as_user = in_memory(server, &agent);
    let client = as_user(user);
    let admin = User { groups: vec![auth::MASTERS.to_owned()], ..User::named("system:network") };
    let admin = as_user(admin.authenticated());
    let proxy = ServiceProxy::new(configuration, names, registry.clone(), world);
    let work = ProxyWork { proxy, client: client.clone(), admin, world: world.clone() };
    let identity = Identity {
        client,
        name: agent,
        lease: None,
        flag: RunningFlag::new("proxy"),
        metrics: Metrics::new(registry),
        world: world.clone(),
    };
    InProcess::start(identity, work)
}
