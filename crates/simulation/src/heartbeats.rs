//! The leases of all simulated nodes, renewed by one task.
//!
//! Nodes that start together are spread over the interval by their second renewal, so that the load is even. From then on
//! each has its times; a late renewal does not delay the next ones.

use crate::node::SimulatedNode;
use api::coordination::v1::{Lease, LeaseSpec};
use api::core::v1::Node;
use api::meta::v1::{ObjectMeta, OwnerReference};
use api::{Kinded, MicroTime, Resource};
use client::{Api, Client, Error, Informer, Key, Patch, json_value};
use env::{Upkeep, World};
use nodeagent::node::NodeOptions;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Requests at a time.
const CONCURRENCY: usize = 16;
/// The share of the duration after which a lease is renewed, as agents have it.
const RENEW_SHARE: u32 = 4;
/// The time before a renewal that has failed is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// Renewals that are due within this time are made together, so that the task wakes less often.
const BATCH: Duration = Duration::from_millis(50);

/// See the module.
pub struct Heartbeats {
    requests: Arc<LeaseRequests>,
    world: World,
    /// The usual time between the renewals of a node.
    interval: Upkeep,
    /// Nodes by the time of their next renewal and their number.
    due: BTreeMap<(Duration, u32), Beat>,
    running: JoinSet<(Beat, Result<(), Error>)>,
}

/// The next renewal of a node.
struct Beat {
    node: Arc<SimulatedNode>,
    /// Whether the lease was not renewed by this process yet.
    is_first: bool,
    /// When it is due.
    due: Duration,
}

impl Heartbeats {
    pub fn new(client: &Client, objects: Informer<Node>, world: &World) -> Self {
        let leases = Api::namespaced(client, &names::Names::kubernetes().node_lease_namespace());
        let duration = NodeOptions::default().lease_duration;
        Heartbeats {
            requests: Arc::new(LeaseRequests { leases, objects, world: world.clone(), duration }),
            world: world.clone(),
            interval: Upkeep::renewal(duration / RENEW_SHARE),
            due: BTreeMap::new(),
            running: JoinSet::new(),
        }
    }

    /// Renews the leases of the nodes that it gets, until their objects are gone.
    pub async fn run(mut self, mut new: mpsc::UnboundedReceiver<Arc<SimulatedNode>>) {
        loop {
            let now = self.world.elapsed();
            self.start_due(now);
            let next = self.due.keys().next().map(|(at, _)| *at);
            let is_full = self.running.len() >= CONCURRENCY;
            let wake = async {
                match next.filter(|_| !is_full) {
                    Some(at) => self.world.sleep_upkeep_until(at, self.interval).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                node = new.recv() => match node {
                    Some(node) => self.insert(now, Beat { node, is_first: true, due: now }),
                    None => return,
                },
                Some(ended) = self.running.join_next() => {
                    // a task that has panicked is in the log
                    if let Ok((beat, renewed)) = ended {
                        self.schedule(beat, renewed);
                    }
                }
                () = wake => {}
            }
        }
    }

    fn start_due(&mut self, now: Duration) {
        while self.running.len() < CONCURRENCY
            && let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now + BATCH
        {
            let beat = entry.remove();
            if beat.node.is_gone() {
                continue;
            }
            if beat.node.is_silent() {
                self.schedule(beat, Ok(()));
                continue;
            }
            let requests = self.requests.clone();
            self.running.spawn(async move {
                let renewed = requests.renew(&beat.node.name).await;
                (beat, renewed)
            });
        }
    }

    /// Sets the time of the next renewal.
    fn schedule(&mut self, beat: Beat, renewed: Result<(), Error>) {
        let (now, interval) = (self.world.elapsed(), self.interval);
        let is_first = beat.is_first && renewed.is_err();
        let at = match renewed {
            Err(error) => {
                tracing::warn!(%error, node = beat.node.name, "the lease of a simulated node was not renewed");
                now + RETRY
            }
            Ok(()) if beat.is_first => {
                let share = (env::random_u64(&self.world) % 1000) as f64 / 1000.0;
                now + interval.period.mul_f64(share)
            }
            Ok(()) => interval.next_tick(beat.due, now),
        };
        self.insert(at, Beat { is_first, ..beat });
    }

    fn insert(&mut self, due: Duration, beat: Beat) {
        self.due.insert((due, beat.node.number), Beat { due, ..beat });
    }
}

/// Requests for leases.
struct LeaseRequests {
    leases: Api<Lease>,
    objects: Informer<Node>,
    world: World,
    duration: Duration,
}

impl LeaseRequests {
    async fn renew(&self, name: &str) -> Result<(), Error> {
        let spec = LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            renew_time: Some(MicroTime::from(self.world.now())),
            ..LeaseSpec::default()
        };
        let patch = Patch::merge(json!({"spec": json_value(&spec)}));
        match self.leases.submit_patch(name, &patch).await {
            Err(why) if why.is_not_found() => self.create(name, spec).await,
            renewed => renewed,
        }
    }

    /// Creates a lease that goes with the node.
    async fn create(&self, name: &str, spec: LeaseSpec) -> Result<(), Error> {
        let Some(node) = self.objects.get(&Key::new("", name)) else { return Ok(()) };
        let owner = OwnerReference {
            api_version: Node::api_version(),
            kind: Node::kind().name.to_string(),
            name: name.to_owned(),
            uid: node.uid().to_owned(),
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta {
            name: name.to_owned(),
            namespace: names::Names::kubernetes().node_lease_namespace(),
            owner_references: vec![owner],
            ..ObjectMeta::default()
        };
        match self.leases.submit(&Lease { metadata, spec, ..Lease::default() }).await {
            Err(why) if why.is_already_exists() => Ok(()),
            created => created,
        }
    }
}
