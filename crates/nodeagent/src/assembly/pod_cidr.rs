//! Tells the runtime the range of pod addresses: that of the node, or without one that of the configuration.

use crate::runtime::SharedRuntime;
use api::core::v1::Node;
use env::World;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The time before a call that failed is repeated.
const RETRY: Duration = Duration::from_secs(10);

/// Follows the node until the task is dropped.
pub async fn follow(
    runtime: &SharedRuntime,
    configured: &str,
    mut node: watch::Receiver<Arc<Node>>,
    world: &World,
) {
    let mut current = String::new();
    loop {
        let of_node = node.borrow_and_update().spec.pod_cidrs.join(",");
        let next = if of_node.is_empty() { configured.to_owned() } else { of_node };
        if next != current {
            match runtime.update_pod_cidr(&next).await {
                Ok(()) => {
                    tracing::info!(cidr = next, "the runtime knows the range of pod addresses");
                    current = next;
                }
                Err(why) => {
                    tracing::warn!(%why, cidr = next, "the runtime did not take the range of pod addresses");
                    env::sleep(world, RETRY).await;
                    continue;
                }
            }
        }
        if node.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::simulated::SimulatedRuntime;
    use env::Simulated;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn the_runtime_gets_the_range_of_the_node() {
        let clock = Simulated::new(0, 1);
        let world: World = clock.clone();
        let simulated = SimulatedRuntime::new(clock);
        let runtime: SharedRuntime = Arc::new(simulated.clone());
        let (sender, receiver) = watch::channel(Arc::new(Node::default()));
        let mut following = Box::pin(follow(&runtime, "10.1.0.0/24", receiver, &world));
        assert!((&mut following).now_or_never().is_none());
        let mut node = Node::default();
        node.spec.pod_cidrs = vec!["10.2.0.0/24".to_owned(), "fd00::/64".to_owned()];
        for _ in 0..2 {
            // the same range is not sent twice
            sender.send_replace(Arc::new(node.clone()));
            assert!((&mut following).now_or_never().is_none());
        }
        let calls: Vec<String> = simulated.take_log().into_iter().filter(|it| it.contains('/')).collect();
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert!(calls[1].contains("10.2.0.0/24,fd00::/64"), "{calls:?}");
    }
}
