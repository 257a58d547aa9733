//! The command `pintle join`: makes this machine a node of a cluster, and runs it.
//!
//! ```text
//! discovery ─ certificate ─ components (node agent, ...) until a signal
//!     └──────────┴─ left out by a machine that is a node already
//! ```
//!
//! Each step prints a line. All state is below `node/` in the data directory, so that a run that was interrupted is
//! repeated, and a later one continues without a token.
//!
//! | module | what it is |
//! |---|---|
//! | [`discovery`] | from an address, a token and a hash to a server that is trusted |
//! | [`certificate`] | the node's first certificate |
//! | [`node_directory`] | the files of the node |
//! | [`servers`] | the addresses of the cluster's servers, and the change from one to another |
//! | [`advice`] | what to do about servers that cannot be reached |
//! | [`readiness`], [`progress`] | the lines about the node's condition, and all others |

mod advice;
mod certificate;
mod discovery;
mod node_directory;
mod progress;
mod readiness;
mod servers;

pub use node_directory::{NodeDirectory, NodeIdentity};
pub use progress::say;
pub use servers::{server_url, server_urls};

use crate::admin_client::client;
use crate::bootstrap::cluster_info::AuthorityHash;
use crate::bootstrap::token::BootstrapToken;
use crate::dns::DnsService;
use crate::host::host_name;
use crate::logs::Verbosity;
use crate::node_agent::{self, AgentProcess, DnsArguments, Readiness};
use crate::options::Join;
use crate::pod_network;
use crate::service_proxy;
use crate::signals::Signals;
use anyhow::Context as _;
use client::Client;
use env::World;
use names::Names;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The wait before components that ended are started again.
const RESTART: Duration = Duration::from_secs(10);

pub async fn join(args: Join, world: World, verbosity: Verbosity) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    tokio::select! {
        ended = run(&args, &world, verbosity) => ended,
        () = signals.next() => {
            say("stopping; the pods of this machine go on, and pintle join continues with them");
            Ok(())
        }
    }
}

async fn run(args: &Join, world: &World, verbosity: Verbosity) -> anyhow::Result<()> {
    let endpoint = runtime_endpoint(args).await?;
    let directory = NodeDirectory::lock(args.data_dir.as_deref())?;
    let names = Names::kubernetes();
    let identity = match directory.identity(world.now())? {
        Some(identity) => resume(args, &directory, identity, world).await?,
        None => join_cluster(args, &directory, &names, world).await?,
    };
    let set_verbosity: node_agent::SetVerbosity = Arc::new(move |text| verbosity.set(text).map(drop));
    loop {
        let client = client(&directory.target()?, world)?;
        let node =
            Node { args, directory: &directory, identity: &identity, endpoint: &endpoint, names: &names };
        // the server is checked while components wait for their next start, too: it may be the reason why they ended
        tokio::select! {
            never = node.keep_components(&client, &set_verbosity, world) => match never {},
            url = servers::follow(&directory, &client, &names, world) => {
                say(&format!("the server does not answer; going on with {url}"));
            }
        }
    }
}

/// A machine that has joined.
struct Node<'a> {
    args: &'a Join,
    directory: &'a NodeDirectory,
    identity: &'a NodeIdentity,
    endpoint: &'a str,
    names: &'a Names,
}

impl Node<'_> {
    /// Runs all components, and starts them again when one has ended.
    async fn keep_components(
        &self,
        client: &Client,
        set_verbosity: &node_agent::SetVerbosity,
        world: &World,
    ) -> Infallible {
        loop {
            let ended = self.components(client.clone(), set_verbosity.clone(), world).await;
            tracing::error!(why = format!("{ended:#}"), "the components of the node ended; they start again");
            env::sleep(world, RESTART).await;
        }
    }

    /// Runs all components of a node, until one ends. This is the list of them.
    async fn components(
        &self,
        client: Client,
        set_verbosity: node_agent::SetVerbosity,
        world: &World,
    ) -> anyhow::Error {
        let dns = match DnsService::find(&client, self.names).await {
            Ok(dns) => dns,
            Err(why) => return anyhow::anyhow!("the DNS service of the cluster: {why}"),
        };
        let agent = AgentProcess {
            dns_arguments: DnsArguments::new(dns.as_ref()),
            arguments: self.directory.agent_arguments(
                self.args.nodeagent_config.as_deref(),
                self.endpoint,
                &self.identity.name,
            ),
            hostname: self.identity.name.clone(),
            clients: None,
            names: self.names.clone(),
            world: world.clone(),
            is_process: true,
            set_verbosity,
        };
        let proxy = service_proxy::run_on_node(client.clone(), &self.identity.name, self.names, world);
        let network = pod_network::run(client.clone(), self.identity.name.clone(), self.endpoint, world);
        let report = readiness::report(&client, &self.identity.name);
        tokio::select! {
            ended = agent.run_once() => match ended {
                Ok(()) => anyhow::anyhow!("the node agent ended"),
                Err(why) => anyhow::anyhow!("the node agent: {}", why.message),
            },
            ended = proxy => ended,
            () = network => anyhow::anyhow!("the pod network ended"),
            never = report => match never {},
        }
    }
}

/// The socket of the container runtime of this machine.
async fn runtime_endpoint(args: &Join) -> anyhow::Result<String> {
    anyhow::ensure!(rustix::process::geteuid().is_root(), "a node needs root: run this with sudo");
    if let Some(given) = &args.container_runtime_endpoint {
        return Ok(given.clone());
    }
    match node_agent::readiness(Some(std::path::Path::new("/")), &args.runtime).await {
        Readiness::Ready { endpoint } => Ok(endpoint),
        Readiness::Missing(why) => {
            anyhow::bail!("{why} pintle check --for join says what else is missing")
        }
    }
}

/// Goes on as the node that this machine is.
async fn resume(
    args: &Join,
    directory: &NodeDirectory,
    identity: NodeIdentity,
    world: &World,
) -> anyhow::Result<NodeIdentity> {
    if let Some(name) = args.node_name.as_deref().filter(|it| !it.eq_ignore_ascii_case(&identity.name)) {
        anyhow::bail!(
            "this machine is the node {} of a cluster already, not {name}: run pintle leave first, or choose another \
             --data-dir",
            identity.name
        );
    }
    if let Some(url) = &args.server {
        servers::move_to(directory, &server_url(url)?, world).await?;
    }
    let url = directory.target()?.url;
    say(&format!("continuing as the node {} of the cluster at {}", identity.name, url.trim_end_matches('/')));
    Ok(identity)
}

async fn join_cluster(
    args: &Join,
    directory: &NodeDirectory,
    names: &Names,
    world: &World,
) -> anyhow::Result<NodeIdentity> {
    const HINT: &str =
        "run pintle token create on the server, and then the line that it prints on this machine";
    let url = args.server.as_deref().with_context(|| format!("the URL of the server is missing: {HINT}"))?;
    let token = args.token.as_deref().with_context(|| format!("--token is missing: {HINT}"))?;
    let (url, token) = (server_url(url)?, BootstrapToken::parse(token)?);
    anyhow::ensure!(
        !args.authority_hashes.is_empty(),
        "--discovery-token-ca-cert-hash is missing, without which another server could take the place of the cluster's: \
         {HINT}"
    );
    let pins: Vec<AuthorityHash> =
        args.authority_hashes.iter().map(|text| AuthorityHash::parse(text)).collect::<Result<_, _>>()?;
    let name =
        args.node_name.clone().or_else(host_name).unwrap_or_else(|| "localhost".to_owned()).to_lowercase();
    let authorities = discovery::discover(&url, &token, &pins, world).await?;
    say(&format!("found the cluster at {url}"));
    directory.write_authorities(&authorities)?;
    certificate::obtain(directory, (&url, &authorities), &token, &name, names, world).await?;
    say(&format!("certificate issued to system:node:{name}"));
    let identity = directory.identity(world.now())?;
    identity
        .context("the certificate that the cluster issued cannot be used: check the clock of this machine")
}
