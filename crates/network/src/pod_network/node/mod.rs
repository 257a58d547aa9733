//! The part of the pod network that runs as long as the node.
//!
//! It waits until the Node has pod ranges, then keeps: the CNI configuration, forwarding, routes to the pods of other
//! nodes ([`plan`]), and masquerade of packets that leave the cluster. It writes when nodes or links of the machine
//! change, and looks at everything once in a while. What the kernel has stays when it ends: pods go on.

mod configuration;
mod forward_policy;
mod forwarding;
mod machine_watch;
mod masquerade;
mod plan;
mod routes;

pub use configuration::{CniPaths, other_configuration};
pub(crate) use masquerade::table_of_ranges as masquerade_table;

use super::attachments::AttachmentsFile;
use super::host_ports;
use super::netlink::{Netlink, NetlinkError};
use crate::netfilter;
use api::core::v1::Node;
use client::{Client, Informer, InformerFactory, Key};
use env::World;
use plan::{NodeNetwork, Plan};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The time between looks at the machine.
const RESYNC: Duration = Duration::from_secs(30);
/// The time before a failed write is repeated.
const RETRY: Duration = Duration::from_secs(5);

/// The settings of the pod network.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of this node.
    pub node: String,
    pub paths: CniPaths,
}

/// A failure to bring the machine to the plan.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error("{0}: {1}")]
    File(&'static str, io::Error),
    #[error("cannot write packet filter rules: {0}")]
    Netfilter(#[from] netfilter::Error),
}

/// Runs until the future is dropped.
pub async fn run(client: Client, world: World, options: Options) {
    // the informer ends with its factory
    let factory = InformerFactory::new(client);
    let nodes = factory.informer::<Node>();
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    nodes.listen(move |change| {
        let is_same = match change {
            client::Change::Updated { old, new } => NodeNetwork::of(old) == NodeNetwork::of(new),
            _ => false,
        };
        if !is_same {
            notify.notify_one();
        }
    });
    nodes.synced().await;
    let network = NodeNetworking { nodes, options, state: State::Start };
    tokio::join!(watch_machine(&world, changed.clone()), network.run(&world, &changed));
}

/// Notifies of changes of the machine. Without it they are found after a while.
async fn watch_machine(world: &World, changed: Arc<Notify>) {
    loop {
        if let Err(why) = machine_watch::run(world, changed.clone()).await {
            tracing::warn!(%why, "changes of the machine are noticed late");
        }
        env::sleep(world, RESYNC).await;
    }
}

/// The state of the node's network; each change of it is logged.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Start,
    AwaitRanges,
    OtherNetwork(PathBuf),
    Running { unreachable: Vec<String> },
}

struct NodeNetworking {
    nodes: Informer<Node>,
    options: Options,
    state: State,
}

impl NodeNetworking {
    async fn run(mut self, world: &World, changed: &Notify) {
        loop {
            let wait = match self.sync().await {
                Ok(()) => RESYNC,
                Err(why) => {
                    tracing::warn!(%why, "the pod network is not complete");
                    RETRY
                }
            };
            // a change or the time, whichever comes first
            let _ = env::timeout(world, wait, changed.notified()).await;
        }
    }

    async fn sync(&mut self) -> Result<(), SyncError> {
        let paths = self.options.paths.clone();
        let other = configuration::other_configuration(&paths)
            .map_err(|why| SyncError::File("cannot read the folder of CNI configurations", why))?;
        if let Some(other) = other {
            configuration::withdraw(&paths)
                .map_err(|why| SyncError::File("cannot remove the CNI configuration", why))?;
            self.enter(State::OtherNetwork(other));
            return Ok(());
        }
        let own = self.nodes.get(&Key::new("", &self.options.node)).map(|node| NodeNetwork::of(&node));
        let Some(own) = own.filter(|own| !own.ranges.is_empty()) else {
            self.enter(State::AwaitRanges);
            return Ok(());
        };
        let plan = self.write(&own).await?;
        let is_new = configuration::install(&paths, &own.ranges, plan.pod_mtu)
            .map_err(|why| SyncError::File("cannot write the CNI configuration", why))?;
        if is_new {
            let ranges: Vec<_> = own.ranges.iter().map(ToString::to_string).collect();
            tracing::info!(ranges = ranges.join(","), mtu = plan.pod_mtu, "wrote the CNI configuration");
        }
        self.enter(State::Running { unreachable: plan.unreachable });
        self.collect_garbage().await
    }

    /// Brings the kernel to the plan.
    async fn write(&self, own: &NodeNetwork) -> Result<Plan, SyncError> {
        let mut nodes: Vec<_> = self.nodes.all().iter().map(|node| NodeNetwork::of(node)).collect();
        nodes.sort_by(|one, two| one.name.cmp(&two.name));
        forwarding::enable(&own.ranges).map_err(|why| SyncError::File("cannot turn forwarding on", why))?;
        let netlink = Netlink::open()?;
        let machine = routes::read_machine(&netlink, own, &nodes).await?;
        let plan = plan::plan(own, &nodes, &machine);
        routes::write(&netlink, &plan).await?;
        masquerade::write(own, &nodes)?;
        if forward_policy::accept_pods(own)? {
            tracing::info!("another program drops forwarded packets: added rules that accept those of pods");
        }
        Ok(plan)
    }

    /// Forgets attachments whose namespace is gone, and repairs host ports.
    async fn collect_garbage(&self) -> Result<(), SyncError> {
        let directory = self.options.paths.state.clone();
        // the lock may be held by a call of the plugin
        let collected = tokio::task::spawn_blocking(move || -> Result<usize, SyncError> {
            let failed = |why| SyncError::File("cannot collect addresses of pods", why);
            let mut file = AttachmentsFile::lock(&directory).map_err(failed)?;
            let gone = file.content.collect_garbage();
            if !gone.is_empty() {
                file.save().map_err(failed)?;
            }
            host_ports::write(&file.content.attachments)?;
            Ok(gone.len())
        });
        match collected.await {
            Ok(Ok(0)) => Ok(()),
            Ok(Ok(count)) => {
                tracing::info!(count, "collected addresses of containers that are gone");
                Ok(())
            }
            Ok(Err(why)) => Err(why),
            Err(why) => Err(SyncError::File("cannot collect addresses of pods", io::Error::other(why))),
        }
    }

    /// Logs a state that is new.
    fn enter(&mut self, state: State) {
        if self.state == state {
            return;
        }
        match &state {
            State::Start => (),
            State::AwaitRanges => {
                tracing::info!(node = self.options.node, "the pod network waits for the node's pod ranges");
            }
            State::OtherNetwork(path) => {
                tracing::info!(configuration = %path.display(), "pods use the CNI configuration of another network");
            }
            State::Running { unreachable } if unreachable.is_empty() => {
                tracing::info!("the pod network is complete");
            }
            State::Running { unreachable } => {
                tracing::warn!(nodes = unreachable.join(","), "no way leads to the pods of these nodes");
            }
        }
        self.state = state;
    }
}
