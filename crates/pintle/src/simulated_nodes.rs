//! Simulated nodes in the process of the API server.

use crate::in_process::{Identity, InMemoryServer, InProcess, RunningFlag, Work, in_memory};
use crate::options::{ConfigErrors, read_config};
use auth::User;
use client::Client;
use client::metrics::Metrics;
use env::World;
use metrics::Registry;
use names::Names;
use nodeagent::stats::AgentMetrics;
use simulation::profile::MAX_NODES;
use simulation::{AgentServers, Fleet, FleetOptions, NodeShape, Profile, SimulatedNodes};
use std::path::Path;
use std::sync::Arc;

/// The user in whose name the fleet reads and writes.
const USER: &str = "system:node-simulation";

/// The flags of the simulation.
#[derive(Default)]
pub struct SimulationArgs<'a> {
    pub nodes: Option<u32>,
    pub profile: Option<&'a Path>,
}

/// The profile of the flags, if nodes are to be simulated. A number of nodes is that of the default shape, in place of
/// the profile's nodes.
pub fn profile(args: &SimulationArgs<'_>, errors: &mut ConfigErrors) -> Option<Profile> {
    const OPTION: &str = "--simulation-profile";
    let mut profile = match args.profile {
        None => Profile::of_nodes(args.nodes?),
        Some(file) => {
            let text = read_config(OPTION, file, errors)?;
            match Profile::parse(text.as_ref()) {
                Ok(profile) => profile,
                Err(mistakes) => {
                    mistakes.into_iter().for_each(|it| errors.add(OPTION, it));
                    return None;
                }
            }
        }
    };
    if let Some(count) = args.nodes {
        profile.nodes = vec![NodeShape { count, ..NodeShape::default() }];
        if count > MAX_NODES {
            errors.add("--nodes", format!("must be at most {MAX_NODES}"));
        }
    }
    Some(profile)
}

/// Nodes before the API server runs, which reaches their agents in memory.
pub struct PreparedNodes {
    profile: Profile,
    nodes: SimulatedNodes,
    metrics: AgentMetrics,
}

impl PreparedNodes {
    pub fn new(profile: Profile) -> Self {
        // the page of metrics is that of a real agent
        let metrics = AgentMetrics::new(Arc::new(Registry::default()));
        PreparedNodes { profile, nodes: SimulatedNodes::default(), metrics }
    }

    /// The agents of the nodes.
    pub fn servers(&self, world: &World) -> Arc<AgentServers> {
        Arc::new(AgentServers::new(self.nodes.clone(), self.metrics.clone(), world.clone()))
    }
}

struct SimulationWork {
    client: Client,
    prepared: PreparedNodes,
    component: String,
    world: World,
}

impl Work for SimulationWork {
    async fn run(&self) {
        let options = FleetOptions {
            profile: self.prepared.profile.clone(),
            client: self.client.clone(),
            component: self.component.clone(),
            metrics: self.prepared.metrics.clone(),
            nodes: self.prepared.nodes.clone(),
            world: self.world.clone(),
        };
        Fleet::new(options).run().await;
    }
}

/// Starts the nodes of a profile.
pub fn start(
    server: &InMemoryServer<'_>,
    names: &Names,
    prepared: PreparedNodes,
    registry: Arc<Registry>,
    world: &World,
) -> InProcess {
    const COMPONENT: &str = "simulated nodes";
    let instrument = server.instrument(COMPONENT);
    let clients = in_memory(server, &names.agent, instrument.as_ref());
    let client =
        clients(User { groups: vec![auth::MASTERS.to_owned()], ..User::named(USER) }.authenticated());
    let identity = Identity {
        client: client.clone(),
        name: names.agent.to_string(),
        lease: None,
        flag: RunningFlag::new(COMPONENT),
        metrics: Metrics::new(registry),
        world: world.clone(),
        instrument,
    };
    let work = SimulationWork { client, prepared, component: names.agent.to_string(), world: world.clone() };
    InProcess::start(identity, work)
}
