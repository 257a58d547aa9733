//! `pintle dns`: cluster DNS against the API server of a kubeconfig.

use super::options::Dns;
use super::port;
use crate::cli::version;
use crate::options::{ConfigErrors, InvalidConfig};
use crate::process_metrics;
use crate::signals::Signals;
use anyhow::Context as _;
use client::metrics::Metrics;
use client::{Rate, transport};
use env::World;
use metrics::Registry;
use names::Names;
use network::dns::{Announcer, ClusterDns, Options};
use outbound::Target;
use std::sync::Arc;
use std::time::Duration;

/// The timeout of leaving the DNS service at shutdown.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(2);

fn read(args: &Dns) -> Result<(Options, Target, Names), InvalidConfig> {
    let mut errors = ConfigErrors::default();
    let names = args.dialect.read(&mut errors);
    let options = args.options(&mut errors);
    let target = match &args.kubeconfig {
        Some(file) => errors.take("--kubeconfig", Target::from_kubeconfig(file)),
        None => {
            errors.add("--kubeconfig", "name the kubeconfig of the API server");
            None
        }
    };
    errors.check()?;
    target.map(|target| (options, target, names)).ok_or_else(|| InvalidConfig(Vec::new()))
}

/// The errors in the option values of `pintle dns`.
pub fn config_errors(args: &Dns) -> Vec<String> {
    read(args).err().map(|InvalidConfig(errors)| errors).unwrap_or_default()
}

/// Answers queries until a signal arrives.
pub async fn dns(args: Dns, world: World) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let (options, target, names) = read(&args)?;
    tracing::info!(version = version(), server = target.url, "cluster DNS starts");
    let registry = Arc::new(Registry::default());
    process_metrics::register(&registry);
    let metrics = Metrics::new(registry.clone());
    let transport = transport::transport(&target, &format!("{}-dns", names.prefix), &metrics)?;
    let client = transport::client(&transport, Rate::default(), &world);
    let announcer = args.announce.then(|| Announcer::new(&client, &names, args.cluster_ip, &world));
    let node = options.node_name.clone();
    let server = ClusterDns::bind(options, &client, &names, &registry, &world).await?;
    let addresses = server.announced_addresses();
    let pages = port::pages(registry, server.readiness());
    let listener = match args.metrics_bind_address.port() {
        0 => None,
        _ => Some(tokio::net::TcpListener::bind(args.metrics_bind_address).await.with_context(|| {
            format!("--metrics-bind-address: cannot listen on {}", args.metrics_bind_address)
        })?),
    };
    tokio::select! {
        () = signals.next() => {}
        () = server.run(announcer.as_ref()) => anyhow::bail!("cluster DNS stopped unexpectedly: see the log"),
        () = port::serve(listener, pages) => {}
    }
    if let Some(announcer) = &announcer {
        let withdrawn = tokio::time::timeout(WITHDRAW_TIMEOUT, announcer.withdraw(&node, &addresses)).await;
        if !matches!(withdrawn, Ok(Ok(()))) {
            tracing::warn!("cannot remove this server from the DNS service");
        }
    }
    tracing::info!("stopped");
    Ok(())
}
