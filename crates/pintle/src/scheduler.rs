//! The scheduler in the process of the API server.

use crate::host::host_name;
use crate::in_process::{Identity, InProcess, RunningFlag, Work, in_memory};
use apiserver::Server;
use auth::User;
use client::Client;
use client::leader;
use client::metrics::Metrics;
use env::World;
use metrics::Registry;
use names::Names;
use scheduler::driver::{self, Options};
use scheduler::framework::Features;
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

/// Starts the scheduler with the default profile.
pub fn start(
    server: &Server,
    names: &Names,
    features: Features,
    lease: Option<leader::Options>,
    flag: RunningFlag,
    registry: Arc<Registry>,
    world: &World,
) -> InProcess {
    let agent = format!("{}-scheduler", names.prefix);
    let user = User::named(format!("system:{agent}")).authenticated();
    let client = in_memory(server, &agent)(user);
    let machine = host_name().unwrap_or_else(|| "localhost".to_owned());
    let options = Options { features, ..Options::new(machine) };
    let work = SchedulerWork { client: client.clone(), world: world.clone(), options };
    let metrics = Metrics::new(registry);
    InProcess::start(Identity { client, name: agent, lease, flag, metrics, world: world.clone() }, work)
}
