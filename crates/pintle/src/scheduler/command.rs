//! `pintle scheduler`: the scheduler as a separate process, against any API server.
//!
//! Invariants: of several schedulers only the one that holds the lease schedules. A scheduler that loses the lease exits
//! at once with a non-zero status. The lease is released at shutdown, so that another need not wait.

use super::configuration;
use crate::cli::version;
use crate::component_port::{Health, Page, Port, PortConfig, PortFlags, ProcessContext};
use crate::controller_manager::identity;
use crate::logs;
use crate::options::{ConfigErrors, InvalidConfig, Scheduler, SchedulerGates};
use crate::process_metrics;
use crate::signals::Signals;
use anyhow::Context as _;
use client::Client;
use client::events::{EventType, Recorder};
use client::leader::{self, Candidate};
use client::metrics::Metrics;
use client::{Rate, transport};
use env::World;
use metrics::Registry;
use names::Names;
use outbound::Target;
use scheduler::config::{Configuration, LeaderElection};
use scheduler::driver;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The timeout of releasing the lease at shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The validated configuration of the process.
struct SchedulerConfig {
    names: Names,
    target: Target,
    configuration: Configuration,
    options: driver::Options,
    lease: Option<leader::Options>,
    port: PortConfig,
    metrics: metrics::Options,
    gates: apiserver::Gates,
}

impl SchedulerConfig {
    fn read(args: &Scheduler, identity: String) -> anyhow::Result<Self> {
        let mut errors = ConfigErrors::default();
        let names = args.dialect.read(&mut errors);
        let feature_gates = args.features.read(&mut errors);
        args.logs.check(&feature_gates, &mut errors);
        let metrics = args.metrics.read(&mut errors);
        let gates = feature_gates.server_gates();
        let read = read_configuration(args, &names, SchedulerGates::new(&feature_gates), &mut errors);
        let connection = read.as_ref().map(|(configuration, _)| &configuration.client_connection);
        let target = connection.and_then(|it| args.target(it, &names, &mut errors));
        let election = read.as_ref().map(|(configuration, _)| &configuration.leader_election);
        let lease = election.and_then(|it| lease(it, identity, &mut errors));
        let flags = PortFlags {
            component: "scheduler",
            bind_address: args.bind_address,
            secure_port: args.secure_port,
            tls: &args.tls,
            delegation: &args.delegation,
            profiling: read.as_ref().is_some_and(|(configuration, _)| configuration.enable_profiling),
        };
        let port = PortConfig::read(&flags, gates.slis, &names, &mut errors);
        errors.check()?;
        let (configuration, options) = read.context("there is no configuration")?;
        let target = target.context("no API server to call: set clientConnection.kubeconfig or --master")?;
        Ok(SchedulerConfig { names, target, configuration, options, lease, port, metrics, gates })
    }
}

/// The configuration of the file and the flags. A mistake without a file is one of the flags.
fn read_configuration(
    args: &Scheduler,
    names: &Names,
    gates: SchedulerGates,
    errors: &mut ConfigErrors,
) -> Option<(Configuration, driver::Options)> {
    let options = args.config_options(errors);
    // the error of a file that cannot be read is there already
    if args.config.is_some() && options.config.is_none() {
        return None;
    }
    configuration::read("--config", &options, names, gates, errors)
}

/// Leader election, if it is enabled. The configuration is validated: durations are positive.
fn lease(election: &LeaderElection, identity: String, errors: &mut ConfigErrors) -> Option<leader::Options> {
    let duration = |nanos: i64| Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    let options = leader::Options {
        lease_duration: duration(election.lease_duration_nanos),
        renew_deadline: duration(election.renew_deadline_nanos),
        retry_period: duration(election.retry_period_nanos),
        ..leader::Options::new(&*election.resource_namespace, &*election.resource_name, identity)
    };
    let options = election.leader_elect.then_some(options)?;
    if election.resource_lock != "leases" {
        let why = format!("{:?} is not supported; use leases", election.resource_lock);
        errors.add("--leader-elect-resource-lock", why);
    }
    if let Some(problem) = options.problem() {
        errors.add("--leader-elect-lease-duration", problem);
    }
    Some(options)
}

/// The errors in the option values of `pintle scheduler`.
pub fn config_errors(args: &Scheduler) -> Vec<String> {
    let read = SchedulerConfig::read(args, String::new()).err();
    match read.map(|why| why.downcast::<InvalidConfig>()) {
        Some(Ok(InvalidConfig(all))) => all,
        Some(Err(other)) => vec![format!("{other:#}")],
        None => Vec::new(),
    }
}

/// Writes the whole configuration to a file.
fn write_config(args: &Scheduler, file: &Path) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::default();
    let names = args.dialect.read(&mut errors);
    let gates = SchedulerGates::new(&args.features.read(&mut errors));
    let read = read_configuration(args, &names, gates, &mut errors);
    errors.check()?;
    let (configuration, _) = read.context("there is no configuration")?;
    configuration::warn_of_version(&configuration);
    std::fs::write(file, configuration.to_yaml(&names))
        .with_context(|| format!("--write-config-to: cannot write {}", file.display()))?;
    tracing::info!(file = %file.display(), "wrote the configuration");
    Ok(())
}

/// Schedules pods until a signal arrives or the lease is lost.
pub async fn scheduler(args: Scheduler, world: World, verbosity: logs::Verbosity) -> anyhow::Result<()> {
    if let Some(file) = &args.write_config_to {
        return write_config(&args, file);
    }
    let mut signals = Signals::new()?;
    let config = SchedulerConfig::read(&args, identity(&world))?;
    configuration::warn_of_version(&config.configuration);
    tracing::info!(version = version(), server = config.target.url, "the scheduler starts");
    tracing::info!(config = config.configuration.to_yaml(&config.names), "using this configuration");
    let registry = Arc::new(Registry::new(config.metrics));
    process_metrics::register(&registry);
    apiserver::discovery::metrics::add_component_metrics(&registry, &config.gates);
    let own_metrics = scheduler::metrics::Metrics::new(&registry);
    let first_check = if config.lease.is_some() { "leaderElection" } else { "ping" };
    let process = ProcessContext {
        metrics: Metrics::new(registry),
        health: Arc::new(Health::new(first_check)),
        pages: pages(&config.configuration, &config.names, &own_metrics),
        world,
        verbosity: Arc::new(move |text| verbosity.set(text)),
    };
    let port = Port::open(config.port, &process, config.names.clone()).await?;
    let work = SchedulerProcess {
        agent: format!("{}-scheduler", config.names.prefix),
        target: config.target,
        rate: rate(&config.configuration),
        options: driver::Options { metrics: own_metrics, ..config.options },
        lease: config.lease,
    };
    let (clients, release) = work.clients(&process)?;
    let running = work.run(clients, &process);
    tokio::select! {
        () = signals.next() => {}
        ended = running => ended?,
        () = port.serve() => anyhow::bail!("the health and metrics port stopped unexpectedly: see the log, or run with -v for details"),
    }
    if let Some(candidate) = release {
        release_lease(candidate).await;
    }
    tracing::info!("stopped");
    Ok(())
}

async fn release_lease(mut candidate: Candidate) {
    let released = tokio::time::timeout(RELEASE_TIMEOUT, candidate.release()).await;
    if !matches!(released, Ok(Ok(()))) {
        tracing::warn!(lease = candidate.name(), "cannot release the lease: others wait until it expires");
    }
}

/// The pages of the port that only a scheduler has.
fn pages(configuration: &Configuration, names: &Names, metrics: &scheduler::metrics::Metrics) -> Arc<[Page]> {
    let configz = schema::encode::untyped(&configuration.to_configz(names));
    let configz = String::from_utf8_lossy(&configz).into_owned();
    let metrics = metrics.clone();
    Arc::new([
        Page { path: "/configz", is_json: true, content: Arc::new(move || configz.clone()) },
        Page {
            path: "/metrics/resources",
            is_json: false,
            content: Arc::new(move || metrics.pod_resources()),
        },
    ])
}

fn rate(configuration: &Configuration) -> Rate {
    let connection = &configuration.client_connection;
    Rate { per_second: connection.qps, burst: u32::try_from(connection.burst).unwrap_or(0).max(1) }
}

/// The scheduler and the API server that it calls.
struct SchedulerProcess {
    agent: String,
    target: Target,
    rate: Rate,
    options: driver::Options,
    lease: Option<leader::Options>,
}

/// Clients with rate limits of their own: neither events nor the lease wait behind bindings.
struct Clients {
    requests: Client,
    events: Client,
    candidate: Option<Candidate>,
}

impl SchedulerProcess {
    /// The clients, and a candidate that releases the lease at shutdown.
    fn clients(&self, process: &ProcessContext) -> anyhow::Result<(Clients, Option<Candidate>)> {
        let transport = transport::transport(&self.target, &self.agent, &process.metrics)?;
        let client = || transport::client(&transport, self.rate, &process.world);
        let candidate = || {
            let lease = self.lease.clone()?;
            Some(Candidate::new(client(), lease, process.world.clone()))
        };
        let clients = Clients { requests: client(), events: client(), candidate: candidate() };
        Ok((clients, candidate()))
    }

    async fn run(self, clients: Clients, process: &ProcessContext) -> anyhow::Result<()> {
        let world = process.world.clone();
        let options = driver::Options { events: Some(clients.events.clone()), ..self.options };
        let name = options.profiles.first().map(|it| it.scheduler_name.clone()).unwrap_or_default();
        let Some(mut candidate) = clients.candidate else {
            driver::run(clients.requests, world, options).await;
            return Ok(());
        };
        let lease = candidate.name().to_owned();
        process.metrics.leads(&lease, false);
        tracing::info!(lease, "waiting for the lease");
        candidate.lead().await;
        process.metrics.leads(&lease, true);
        tracing::info!(lease, "acquired the lease");
        let events = Recorder::new(clients.events, world.clone(), &name);
        if let Some(object) = candidate.lease() {
            let message = format!("{} became leader", candidate.identity());
            events.record_about(object.clone(), EventType::Normal, "LeaderElection", message);
        }
        tokio::select! {
            () = driver::run(clients.requests, world, options) => Ok(()),
            () = candidate.keep() => {
                // another scheduler may start at any moment, so nothing is finished first
                let _ = writeln!(std::io::stderr(), "pintle: lost the lease {lease}: another scheduler may hold it now");
                crate::log_output::flush();
                std::process::exit(1)
            }
        }
    }
}
