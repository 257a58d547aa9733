//! The lease of the node: its heartbeat.
//!
//! The agent renews it every quarter of its duration. While the API server does not answer, it tries again after a delay
//! that grows to seven seconds.

use api::MicroTime;
use api::coordination::v1::{Lease, LeaseSpec};
use api::core::v1::Node;
use api::meta::v1::{ObjectMeta, OwnerReference};
use api::{Kinded, Resource};
use client::{Api, Backoff, Client, Error};
use env::World;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Waits between attempts while the API server does not answer.
const RETRIES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(7));
/// The share of the duration after which the lease is renewed.
const RENEW_SHARE: u32 = 4;

/// Renews the lease of one node.
pub struct LeaseRenewal {
    leases: Api<Lease>,
    world: World,
    name: String,
    duration: Duration,
    /// The node, whose uid the lease is owned by; without a uid it is not registered.
    node: watch::Receiver<Arc<Node>>,
    /// The lease as the server has it.
    latest: Option<Lease>,
}

impl LeaseRenewal {
    pub fn new(
        client: &Client,
        world: World,
        name: &str,
        duration: Duration,
        node: watch::Receiver<Arc<Node>>,
    ) -> Self {
        let leases = Api::namespaced(client, &names::Names::kubernetes().node_lease_namespace());
        LeaseRenewal { leases, world, name: name.to_owned(), duration, node, latest: None }
    }

    /// Renews until the task is dropped.
    pub async fn run(mut self) {
        let mut backoff = RETRIES;
        loop {
            let pause = match self.renew().await {
                Ok(()) => {
                    backoff = RETRIES;
                    // nodes that started together drift apart
                    let spread = (env::random_u64(&self.world) % 1000) as f64 / 1000.0;
                    (self.duration / RENEW_SHARE).mul_f64(1.0 + 0.04 * spread)
                }
                Err(error) => {
                    tracing::warn!(%error, lease = self.name, "the lease of the node was not renewed");
                    self.latest = None;
                    backoff.pause()
                }
            };
            env::sleep(&self.world, pause).await;
        }
    }

    /// Writes the lease once.
    pub async fn renew(&mut self) -> Result<(), Error> {
        if let Some(latest) = &self.latest {
            match self.leases.replace(&self.renewed(latest)).await {
                Ok(lease) => {
                    self.latest = Some(lease);
                    return Ok(());
                }
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        self.latest = match self.leases.get_opt(&self.name).await? {
            Some(current) => Some(self.leases.replace(&self.renewed(&current)).await?),
            None => {
                // the owner removes the lease with the node
                if self.node.borrow().uid().is_empty() {
                    let registered = self.node.wait_for(|node| !node.uid().is_empty()).await;
                    drop(registered);
                }
                Some(self.leases.create(&self.renewed(&Lease::default())).await?)
            }
        };
        Ok(())
    }

    /// A lease with the time of now.
    fn renewed(&self, current: &Lease) -> Lease {
        let mut lease = current.clone();
        let node = self.node.borrow();
        if lease.metadata.name.is_empty() {
            lease.metadata = ObjectMeta { name: self.name.clone(), ..ObjectMeta::default() };
            lease.metadata.namespace = names::Names::kubernetes().node_lease_namespace();
        }
        if lease.metadata.owner_references.is_empty() && !node.uid().is_empty() {
            lease.metadata.owner_references = vec![OwnerReference {
                api_version: Node::api_version(),
                kind: Node::kind().name.to_string(),
                name: self.name.clone(),
                uid: node.uid().to_owned(),
                ..OwnerReference::default()
            }];
        }
        lease.spec = LeaseSpec {
            holder_identity: Some(self.name.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            renew_time: Some(MicroTime::from(self.world.now())),
            ..lease.spec
        };
        lease
    }
}
