//! `pintle controller-manager`: the control loops as a separate process, against any API server.
//!
//! Invariants: of several managers only the one that holds the lease runs the loops. A manager that loses the lease exits
//! at once with a non-zero status. The lease is not released at shutdown; others wait until it expires, as upstream's do.

use crate::cli::version;
use crate::component_port::{Health, Port, PortConfig, PortFlags, ProcessContext};
use crate::logs;
use crate::options::{ConfigErrors, ControllerManager, InvalidConfig};
use crate::process_metrics;
use crate::signals::Signals;
use anyhow::Context as _;
use client::Client;
use client::events::EventType;
use client::leader::{self, Candidate};
use client::metrics::Metrics;
use client::{Rate, transport};
use controllers::accounts::Accounts;
use controllers::{Context, registry};
use env::World;
use metrics::Registry;
use names::Names;
use outbound::{Credentials, Target};
use std::io::Write as _;
use std::sync::Arc;

/// The validated configuration of the process.
struct ManagerConfig {
    manager: Manager,
    port: PortConfig,
    metrics: metrics::Options,
    gates: apiserver::Gates,
}

/// The control loops and the API server that they call.
struct Manager {
    names: Names,
    target: Target,
    rate: Rate,
    own_accounts: bool,
    loops: registry::Options,
    lease: Option<leader::Options>,
}

impl ManagerConfig {
    fn read(args: &ControllerManager, identity: String) -> anyhow::Result<Self> {
        let mut errors = ConfigErrors::default();
        let names = args.dialect.read(&mut errors);
        let feature_gates = args.features.read(&mut errors);
        args.logs.check(&feature_gates, &mut errors);
        let metrics = args.metrics.read(&mut errors);
        let target = args.target(&names, &mut errors);
        let mut loops = registry::Options { gates: feature_gates.controller_gates(), ..Default::default() };
        args.apply_to(&mut loops, &mut errors);
        let lease = args.leader_election.read(identity, &names, &mut errors);
        let gates = feature_gates.server_gates();
        let flags = PortFlags {
            component: "controller-manager",
            bind_address: args.bind_address,
            secure_port: args.secure_port,
            tls: &args.tls,
            delegation: &args.delegation,
            profiling: args.metrics.profiling,
        };
        let port = PortConfig::read(&flags, gates.slis, &names, &mut errors);
        errors.check()?;
        let target = target.context("no API server to call: set --kubeconfig or --master")?;
        // by default pods trust the same authorities as this process
        let trusted_ca = target.authorities.as_deref().map(|pem| String::from_utf8_lossy(pem).into_owned());
        for authority in [&mut loops.root_ca_publisher.authority, &mut loops.service_account_tokens.authority]
        {
            if authority.is_none() {
                authority.clone_from(&trusted_ca);
            }
        }
        let (rate, own_accounts) = (args.rate(), args.use_service_account_credentials);
        Ok(ManagerConfig {
            manager: Manager { names, target, rate, own_accounts, loops, lease },
            port,
            metrics,
            gates,
        })
    }
}

/// The errors in the option values of `pintle controller-manager`.
pub fn config_errors(args: &ControllerManager) -> Vec<String> {
    let read = ManagerConfig::read(args, String::new()).err();
    match read.map(|why| why.downcast::<InvalidConfig>()) {
        Some(Ok(InvalidConfig(all))) => all,
        Some(Err(other)) => vec![format!("{other:#}")],
        None => Vec::new(),
    }
}

/// Runs the control loops until a signal arrives or the lease is lost.
pub async fn controller_manager(
    args: ControllerManager,
    world: World,
    verbosity: logs::Verbosity,
) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let config = ManagerConfig::read(&args, identity(&world))?;
    let ManagerConfig { manager, port, metrics, gates } = config;
    tracing::info!(version = version(), server = manager.target.url, "the controller manager starts");
    let registry = Arc::new(Registry::new(metrics));
    process_metrics::register(&registry);
    apiserver::discovery::metrics::add_component_metrics(&registry, &gates);
    let process = ProcessContext {
        metrics: Metrics::new(registry),
        health: Arc::new(Health::new("leaderElection")),
        pages: Arc::new([]),
        world,
        verbosity: Arc::new(move |text| verbosity.set(text)),
    };
    let port = Port::open(port, &process, manager.names.clone()).await?;
    let running = manager.run(process);
    tokio::select! {
        () = signals.next() => {}
        ended = running => ended?,
        () = port.serve() => anyhow::bail!("the health and metrics port stopped unexpectedly: see the log, or run with -v for details"),
    }
    tracing::info!("stopped");
    Ok(())
}

impl Manager {
    async fn run(self, process: ProcessContext) -> anyhow::Result<()> {
        let agent = format!("{}-controller-manager", self.names.prefix);
        let transport = transport::transport(&self.target, &agent, &process.metrics)?;
        let calls = || transport::client(&transport, self.rate, &process.world);
        let context = Context::new(calls(), process.world.clone(), self.names.clone());
        let context = context.counted_in(process.metrics.clone());
        let context = match self.own_accounts {
            true => context.with_accounts(self.accounts(&agent, calls(), &process)?),
            false => context,
        };
        let (loops_transport, rate, world) = (transport.clone(), self.rate, process.world.clone());
        let context =
            context.with_clients(Arc::new(move || transport::client(&loops_transport, rate, &world)));
        match self.lease.clone() {
            None => self.run_loops(context, &process.health).await,
            // lease renewal has its own client, so that it does not queue behind the loops
            Some(lease) => {
                self.lead(Candidate::new(calls(), lease, process.world.clone()), context, &process).await
            }
        }
    }

    async fn run_loops(&self, context: Context, health: &Health) -> anyhow::Result<()> {
        health.add_running(
            registry::chosen(&self.loops.controllers, &self.loops.gates)?.iter().map(|it| it.name),
        );
        registry::run(context, &self.loops).await?;
        anyhow::bail!("all control loops have ended: see the log, or run with -v for details")
    }

    async fn lead(
        &self,
        mut candidate: Candidate,
        context: Context,
        process: &ProcessContext,
    ) -> anyhow::Result<()> {
        let name = candidate.name().to_owned();
        process.metrics.leads(&name, false);
        tracing::info!(lease = name, "waiting for the lease");
        candidate.lead().await;
        process.metrics.leads(&name, true);
        tracing::info!(lease = name, "acquired the lease");
        if let Some(lease) = candidate.lease() {
            let message = format!("{} became leader", candidate.identity());
            context.events.record_about(lease.clone(), EventType::Normal, "LeaderElection", message);
        }
        tokio::select! {
            ended = self.run_loops(context, &process.health) => ended,
            () = candidate.keep() => {
                // another manager may start at any moment, so nothing is finished first
                let _ = writeln!(std::io::stderr(), "pintle: lost the lease {name}: another manager may hold it now");
                crate::log_output::flush();
                std::process::exit(1)
            }
        }
    }

    /// Creates clients of service accounts, on connections without credentials of their own.
    fn accounts(
        &self,
        agent: &str,
        own: Client,
        process: &ProcessContext,
    ) -> anyhow::Result<controllers::context::Accounts> {
        let anonymous = Target { identity: None, credentials: Credentials::None, ..self.target.clone() };
        let accounts = Accounts {
            own,
            transport: transport::transport(&anonymous, agent, &process.metrics)?,
            namespace: self.names.system_namespace(),
            rate: self.rate,
            world: process.world.clone(),
        };
        Ok(Arc::new(move |account| accounts.client(account)))
    }
}

/// The identity of a lease candidate: the host name and a random UUID.
pub fn identity(world: &World) -> String {
    let machine = crate::host::host_name().unwrap_or_else(|| "localhost".to_owned());
    let (a, b) = (env::random_u64(world), env::random_u64(world));
    format!(
        "{machine}_{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 52,
        b & 0xffff_ffff_ffff
    )
}
