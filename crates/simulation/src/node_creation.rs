//! Creates the nodes of a profile that do not exist. A node that is deleted later stays away.

use crate::node_object;
use crate::profile::NodeShape;
use api::core::v1::Node;
use api::{Resource, Time};
use client::{Api, Backoff, Client, Informer, Key};
use env::World;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Requests at a time.
const CONCURRENCY: usize = 32;
/// Waits between attempts to create a node.
const RETRIES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// See the module.
pub struct NodeCreation {
    api: Api<Node>,
    objects: Informer<Node>,
    world: World,
}

impl NodeCreation {
    pub fn new(client: &Client, objects: Informer<Node>, world: &World) -> Self {
        NodeCreation { api: Api::all(client), objects, world: world.clone() }
    }

    pub async fn run(self, shapes: Vec<NodeShape>) {
        self.objects.synced().await;
        let creation = Arc::new(self);
        let (mut running, mut number) = (JoinSet::new(), 0);
        for shape in shapes {
            for nth in 0..shape.count {
                let node = node_object::of_shape(&shape, nth, number, Time::from(creation.world.now()));
                number += 1;
                if creation.objects.get(&Key::new("", node.name())).is_some() {
                    continue;
                }
                if running.len() >= CONCURRENCY {
                    running.join_next().await;
                }
                let creation = creation.clone();
                running.spawn(async move { creation.create(&node).await });
            }
        }
        running.join_all().await;
    }

    async fn create(&self, node: &Node) {
        let mut backoff = RETRIES;
        loop {
            match self.api.submit(node).await {
                Ok(()) => return,
                Err(why) if why.is_already_exists() => return,
                Err(error) => {
                    tracing::warn!(%error, node = node.name(), "a simulated node was not created");
                    env::sleep(&self.world, backoff.pause()).await;
                }
            }
        }
    }
}
