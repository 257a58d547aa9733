//! `pintle controller-manager`: the control loops as a process of their own, against any API server.
//!
//! What always holds: of several managers one works, the one that holds the lease; who loses it ends at once, with a
//! status that says so. The lease is not given back at the end: others wait until it has run out, as upstream's do.

mod port;

use crate::cli::version;
use crate::logs;
use crate::options::{ConfigErrors, ControllerManager, Problems};
use crate::process;
use crate::signals::Signals;
use anyhow::Context as _;
use apiserver::observability::Verbosity;
use client::Client;
use client::events::EventType;
use client::leader::{self, Candidate};
use client::metrics::Metrics;
use client::transport::{self, Rate};
use controllers::accounts::Accounts;
use controllers::{Context, registry};
use env::World;
use metrics::Registry;
use names::Names;
use outbound::{Credentials, Target};
use port::{Health, Port};
use std::io::Write as _;
use std::sync::Arc;

/// What the command line says, read and found to be usable.
struct Wanted {
    work: Work,
    port: port::Wanted,
    counted: metrics::Options,
    gates: apiserver::Gates,
}

/// What is to be run, and against which server.
struct Work {
    names: Names,
    target: Target,
    rate: Rate,
    own_accounts: bool,
    loops: registry::Options,
    lease: Option<leader::Options>,
}

impl Wanted {
    fn read(asked: &ControllerManager, identity: String) -> anyhow::Result<Self> {
        let mut wrong = ConfigErrors::default();
        let names = asked.dialect.read(&mut wrong);
        let decided = asked.features.read(&mut wrong);
        asked.logs.check(decided.shapes_log(), &mut wrong);
        let counted = asked.numbers.read(&mut wrong);
        let target = asked.target(&names, &mut wrong);
        let mut loops = registry::Options { gates: decided.of_loops(), ..Default::default() };
        asked.onto(&mut loops, &mut wrong);
        let lease = asked.leadership.read(identity, &names, &mut wrong);
        let gates = decided.of_server();
        let port = port::Wanted::read(asked, gates.slis, &names, &mut wrong);
        wrong.check()?;
        let target =
            target.context("there is no API server to call: name one with --kubeconfig or --master")?;
        // whom this process believes is whom pods should believe, unless something else was said
        let believed = target.authorities.as_deref().map(|pem| String::from_utf8_lossy(pem).into_owned());
        for authority in [&mut loops.root_ca_publisher.authority, &mut loops.service_account_tokens.authority]
        {
            if authority.is_none() {
                authority.clone_from(&believed);
            }
        }
        let (rate, own_accounts) = (asked.rate(), asked.use_service_account_credentials);
        Ok(Wanted { work: Work { names, target, rate, own_accounts, loops, lease }, port, counted, gates })
    }
}

/// Everything that is wrong with a command line.
pub fn problems(asked: &ControllerManager) -> Vec<String> {
    let read = Wanted::read(asked, String::new()).err();
    match read.map(|why| why.downcast::<Problems>()) {
        Some(Ok(Problems(all))) => all,
        Some(Err(other)) => vec![format!("{other:#}")],
        None => Vec::new(),
    }
}

/// Runs the loops until a signal stops it or the lease is lost.
pub async fn controller_manager(
    asked: ControllerManager,
    world: World,
    verbosity: logs::Verbosity,
) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let wanted = Wanted::read(&asked, identity(&world))?;
    let Wanted { work, port, counted, gates } = wanted;
    tracing::info!(version = version(), server = work.target.url, "the controller manager starts");
    let registry = Arc::new(Registry::new(counted));
    process::tell(&registry);
    apiserver::discovery::metrics::about_component(&registry, &gates);
    let told = Told {
        metrics: Metrics::new(registry),
        health: Arc::default(),
        world,
        verbosity: Arc::new(move |text| verbosity.set(text)),
    };
    let port = Port::open(port, &told, work.names.clone()).await?;
    let working = work.run(told);
    tokio::select! {
        () = signals.next() => {}
        ended = working => ended?,
        () = port.serve() => anyhow::bail!("the port stopped by itself: see the log, with -v for more"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// Whom the loops tell how they are.
struct Told {
    metrics: Metrics,
    health: Arc<Health>,
    world: World,
    /// Changes how much is logged.
    verbosity: Verbosity,
}

impl Work {
    async fn run(self, told: Told) -> anyhow::Result<()> {
        let agent = format!("{}-controller-manager", self.names.prefix);
        let transport = transport::transport(&self.target, &agent, &told.metrics)?;
        let calls = || transport::client(&transport, self.rate, &told.world);
        let context = Context::new(calls(), told.world.clone(), self.names.clone());
        let context = context.counted_in(told.metrics.clone());
        let context = match self.own_accounts {
            true => context.with_accounts(self.accounts(&agent, calls(), &told)?),
            false => context,
        };
        let (loops_transport, rate, world) = (transport.clone(), self.rate, told.world.clone());
        let context =
            context.with_clients(Arc::new(move || transport::client(&loops_transport, rate, &world)));
        match self.lease.clone() {
            None => self.loop_for_ever(context, &told.health).await,
            // what renews the lease does not wait behind what the loops ask
            Some(lease) => {
                self.lead(Candidate::new(calls(), lease, told.world.clone()), context, &told).await
            }
        }
    }

    async fn loop_for_ever(&self, context: Context, health: &Health) -> anyhow::Result<()> {
        health.runs(registry::chosen(&self.loops.controllers, &self.loops.gates)?.iter().map(|it| it.name));
        registry::run(context, &self.loops).await?;
        anyhow::bail!("all loops have ended: see the log, with -v for more")
    }

    async fn lead(&self, mut candidate: Candidate, context: Context, told: &Told) -> anyhow::Result<()> {
        let name = candidate.name().to_owned();
        told.metrics.leads(&name, false);
        tracing::info!(lease = name, "waits for the lease");
        candidate.lead().await;
        told.metrics.leads(&name, true);
        tracing::info!(lease = name, "leads");
        if let Some(lease) = candidate.lease() {
            let message = format!("{} became leader", candidate.identity());
            context.events.record_about(lease.clone(), EventType::Normal, "LeaderElection", message);
        }
        tokio::select! {
            ended = self.loop_for_ever(context, &told.health) => ended,
            () = candidate.keep() => {
                // another one may begin any moment: nothing is finished first
                let _ = writeln!(std::io::stderr(), "pintle: the lease {name} was lost");
                std::process::exit(1)
            }
        }
    }

    /// Clients of accounts, on connections that show nobody by themselves.
    fn accounts(
        &self,
        agent: &str,
        own: Client,
        told: &Told,
    ) -> anyhow::Result<controllers::context::Accounts> {
        let nobody = Target { identity: None, credentials: Credentials::None, ..self.target.clone() };
        let accounts = Accounts {
            own,
            transport: transport::transport(&nobody, agent, &told.metrics)?,
            namespace: self.names.system_namespace(),
            rate: self.rate,
            world: told.world.clone(),
        };
        Ok(Arc::new(move |account| accounts.client(account)))
    }
}

/// Who wants to hold the lease: this machine, and what tells several on it apart.
pub fn identity(world: &World) -> String {
    let machine = crate::up::machine_name().unwrap_or_else(|| "localhost".to_owned());
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
