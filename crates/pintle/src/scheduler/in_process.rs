//! The scheduler in the process of the API server.

use super::configuration;
use crate::in_process::{Identity, InMemoryServer, InProcess, Instrument, RunningFlag, Work, in_memory};
use crate::options::{ConfigErrors, SchedulerGates, read_config};
use auth::User;
use client::Client;
use client::leader;
use client::metrics::Metrics;
use env::World;
use metrics::Registry;
use names::Names;
use scheduler::config;
use scheduler::driver::{self, Options};
use std::path::Path;
use std::sync::Arc;

struct SchedulerWork {
    client: Client,
    world: World,
    options: Options,
}

impl Work for SchedulerWork {
    async fn run(&self) {
        driver::run(self.client.clone(), self.world.clone(), self.options.clone()).await;
    }
}

/// The settings of a configuration file, or the default ones. Leader election and connection of the file have no
/// effect in this process.
pub fn options(
    file: Option<&Path>,
    names: &Names,
    gates: SchedulerGates,
    errors: &mut ConfigErrors,
) -> Option<Options> {
    const OPTION: &str = "--scheduler-config";
    let text = match file {
        Some(file) => Some(read_config(OPTION, file, errors)?),
        None => None,
    };
    let options = config::Options { config: text, ..config::Options::default() };
    let (configuration, options) = configuration::read(OPTION, &options, names, gates, errors)?;
    configuration::warn_of_version(&configuration);
    Some(options)
}

/// Starts the scheduler.
pub fn start(
    server: &InMemoryServer<'_>,
    names: &Names,
    options: Options,
    (lease, instrument): (Option<leader::Options>, Option<Instrument>),
    flag: RunningFlag,
    registry: Arc<Registry>,
    world: &World,
) -> InProcess {
    let agent = format!("{}-scheduler", names.prefix);
    let user = User::named(format!("system:{agent}")).authenticated();
    let client = in_memory(server, &agent, instrument.as_ref())(user);
    let options = Options { metrics: scheduler::metrics::Metrics::new(&registry), ..options };
    let work = SchedulerWork { client: client.clone(), world: world.clone(), options };
    let metrics = Metrics::new(registry);
    let world = world.clone();
    InProcess::start(Identity { client, name: agent, lease, flag, metrics, world, instrument }, work)
}
