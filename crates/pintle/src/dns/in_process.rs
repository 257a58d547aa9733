//! Cluster DNS in the process of the API server.

use super::service::DnsService;
use crate::bootstrap::component_roles;
use crate::in_process::{Identity, InMemoryServer, InProcess, RunningFlag, Work, in_memory};
use auth::User;
use client::Client;
use client::metrics::Metrics;
use env::World;
use metrics::Registry;
use names::Names;
use network::dns::{Announcer, ClusterDns, Options, ServiceState, StartError};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The time before a server that could not start is started again.
const RETRY: Duration = Duration::from_secs(10);
/// The time in which the DNS service should be there; the agent of this node starts then in any case.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(5);
const SERVICE_RETRY: Duration = Duration::from_millis(100);
/// The timeout of leaving the DNS service at shutdown.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(2);

struct DnsWork {
    options: Options,
    client: Client,
    /// Grants the server its rights.
    admin: Client,
    names: Names,
    announcer: Arc<Announcer>,
    registry: Arc<Registry>,
    /// The addresses that it announces, for its end.
    announced: Arc<OnceLock<Vec<SocketAddr>>>,
    world: World,
}

impl DnsWork {
    async fn run_once(&self) -> Result<(), StartError> {
        if let Err(why) = component_roles::grant_dns(&self.admin, &self.names).await {
            tracing::warn!(%why, "cannot write the roles of cluster DNS");
        }
        let server =
            ClusterDns::bind(self.options.clone(), &self.client, &self.names, &self.registry, &self.world);
        let server = server.await?;
        let _ = self.announced.set(server.announced_addresses());
        server.run(Some(&self.announcer)).await;
        Ok(())
    }
}

impl Work for DnsWork {
    async fn run(&self) {
        loop {
            let message = match self.run_once().await {
                Ok(()) => "it ended".to_owned(),
                Err(why) => why.to_string(),
            };
            tracing::error!(%message, "cluster DNS does not run; it starts again");
            env::sleep(&self.world, RETRY).await;
        }
    }
}

/// Starts the server. `cluster_ip` is the address of the DNS service, if there is none yet.
pub async fn start(
    server: &InMemoryServer<'_>,
    names: &Names,
    options: Options,
    cluster_ip: IpAddr,
    registry: Arc<Registry>,
    world: &World,
) -> (InProcess, DnsService) {
    let name = format!("{}-dns", names.prefix);
    let as_user = in_memory(server, &name, None);
    let client = as_user(User::named(component_roles::dns_user(names)).authenticated());
    let admin = User { groups: vec![auth::MASTERS.to_owned()], ..User::named("system:apiserver") };
    let admin = as_user(admin.authenticated());
    let announcer = Arc::new(Announcer::new(&client, names, Some(cluster_ip), world));
    let addresses = match service(&announcer, &admin, names, world).await {
        Ok(state) => state.addresses().to_vec(),
        Err(why) => {
            tracing::warn!(%why, "the DNS service is not there yet");
            vec![cluster_ip]
        }
    };
    let service = DnsService { addresses: addresses.clone(), domain: options.domain.clone() };
    let mut options = options;
    // a machine whose resolver is the cluster's DNS has no other
    options.forward.own_addresses.extend(addresses);
    let announced = Arc::<OnceLock<Vec<SocketAddr>>>::default();
    let node = options.node_name.clone();
    let withdraw = {
        let (announcer, announced) = (announcer.clone(), announced.clone());
        async move {
            let Some(addresses) = announced.get() else { return };
            let withdrawn =
                tokio::time::timeout(WITHDRAW_TIMEOUT, announcer.withdraw(&node, addresses)).await;
            if !matches!(withdrawn, Ok(Ok(()))) {
                tracing::warn!("cannot remove this server from the DNS service");
            }
        }
    };
    let work = DnsWork {
        options,
        client: client.clone(),
        admin,
        names: names.clone(),
        announcer,
        registry: registry.clone(),
        announced,
        world: world.clone(),
    };
    let identity = Identity {
        client,
        name,
        lease: None,
        flag: RunningFlag::new("dns"),
        metrics: Metrics::new(registry),
        world: world.clone(),
        instrument: None,
    };
    (InProcess::start(identity, work).and_then(withdraw), service)
}

/// The DNS service, which is created if there is none. The system namespace may appear a moment after the server, and
/// rights take effect a moment after their roles are written.
async fn service(
    announcer: &Announcer,
    admin: &Client,
    names: &Names,
    world: &World,
) -> Result<ServiceState, client::Error> {
    let deadline = world.elapsed() + SERVICE_TIMEOUT;
    loop {
        let attempt = async {
            component_roles::grant_dns(admin, names).await?;
            announcer.ensure_service().await
        };
        match attempt.await {
            Err(_) if world.elapsed() < deadline => env::sleep(world, SERVICE_RETRY).await,
            result => return result,
        }
    }
}
