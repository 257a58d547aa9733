//! The periodic check of all nodes: marks nodes without heartbeats as lost, and taints nodes that are not ready.
//!
//! Invariants: a check that runs late marks no node as lost, because heartbeats may be delayed as this loop was.
//! Without nodes there are no checks. A write is decided from the state of the node that it writes to.

use super::health::{self, Health, Moment};
use super::metrics::ZoneMetrics;
use super::options::Options;
use super::taints::{EvictionTaint, TaintNames};
use super::task::AT_ONCE;
use super::zones::{ClusterChange, Count, Zones};
use crate::Context;
use crate::nodes::{self, Part};
use api::Resource;
use api::coordination::v1::Lease;
use api::core::v1::Node;
use client::events::EventType;
use client::{Failure, Informer, Key};
use env::{ExactSteps, Interval, Upkeep, World};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// A check is late if more periods than this have passed since the last one.
const LATE: u32 = 2;

/// A heartbeat is overdue if none has come for so long: agents send one every ten seconds.
const OVERDUE: Duration = Duration::from_secs(25);

pub(super) struct Monitor {
    context: Context,
    options: Options,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    taint_names: Arc<TaintNames>,
    metrics: ZoneMetrics,
    known: BTreeMap<String, NodeRecord>,
    zones: Zones,
    /// The number of checks.
    checks: u64,
    /// When the last check began.
    checked: Option<Duration>,
    tickets: u64,
    /// While a node may become lost.
    exact_steps: Option<ExactSteps>,
}

struct NodeRecord {
    node: Arc<Node>,
    health: Health,
    /// Its place among the nodes that wait for eviction.
    ticket: Option<u64>,
    /// The number of the last check that found it.
    seen: u64,
}

impl Monitor {
    pub fn new(
        context: Context,
        options: Options,
        nodes: Informer<Node>,
        leases: Informer<Lease>,
        taint_names: Arc<TaintNames>,
    ) -> Self {
        let metrics = ZoneMetrics::new(&context.metrics);
        let (known, zones) = (BTreeMap::new(), Zones::new(options.rates));
        let (checks, checked, tickets) = (0, None, 0);
        Monitor {
            context,
            options,
            nodes,
            leases,
            taint_names,
            metrics,
            known,
            zones,
            checks,
            checked,
            tickets,
            exact_steps: None,
        }
    }

    /// Checks for ever; `node_added` ends the wait for a first node.
    pub async fn run(mut self, node_added: Arc<Notify>) {
        let world = self.context.world.clone();
        let period = self.options.period.max(Duration::from_millis(1));
        let mut ticks = Interval::upkeep(&world, Upkeep::check(period));
        loop {
            if self.known.is_empty() && self.nodes.is_empty() {
                node_added.notified().await;
                ticks.reset_immediately();
                continue;
            }
            tokio::select! {
                biased;
                () = ticks.tick() => self.check().await,
                () = reached(&world, self.zones.next()) => {}
            }
            self.evict_due().await;
        }
    }

    fn moment(&self) -> Moment {
        Moment { time: self.context.time(), elapsed: self.context.world.elapsed() }
    }

    async fn check(&mut self) {
        let now = self.moment();
        self.checks += 1;
        let mut silent = self.observe(&now);
        let last = self.checked.replace(now.elapsed);
        if is_late(last, now.elapsed, self.options.period) && !silent.is_empty() {
            tracing::warn!(
                nodes = silent.len(),
                "the check of nodes is late: silent nodes are not marked as lost"
            );
            silent.clear();
        }
        let lost = at_once(silent.iter().map(|silent| self.mark_lost(silent, &now)).collect()).await;
        self.replace(lost);
        let counts = self.count();
        match self.zones.update(&counts, now.elapsed) {
            ClusterChange::None => {}
            ClusterChange::Disrupted => tracing::info!("no node is ready: no pods are evicted"),
            ClusterChange::Recovered => {
                tracing::info!("some nodes are ready again");
                self.known.values_mut().for_each(|known| known.health.last_seen = now.elapsed);
            }
        }
        let wrong = self.plan_evictions();
        let wanted = !self.zones.is_disrupted();
        let corrected = at_once(wrong.iter().map(|node| self.taint(node, wanted, &now)).collect()).await;
        self.replace(corrected);
        let is_fading = self.known.values().any(|it| it.is_fading(now.elapsed));
        self.exact_steps = is_fading.then(|| self.context.world.step_exactly());
        let took = self.context.world.elapsed().saturating_sub(now.elapsed);
        self.metrics.checked(counts, self.known.len(), took);
    }

    /// Updates the health of all nodes. Returns the silent ones.
    fn observe(&mut self, now: &Moment) -> Vec<(Arc<Node>, Health)> {
        let mut silent = Vec::new();
        for node in self.nodes.all() {
            let name = node.name().to_owned();
            let before = self.known.remove(&name);
            let same = before.as_ref().filter(|it| it.node.uid() == node.uid());
            let health = Health::observe(same.map(|it| &it.health), &node, self.lease(&name).as_deref(), now);
            let ticket = same.and_then(|it| it.ticket);
            if same.is_none() {
                before.iter().for_each(|it| self.record_removal(&it.node));
                self.record(&node, "RegisteredNode", &format!("Registered Node {name} in Controller"));
            }
            if health.is_silent(now, &self.options) && nodes::ready(&node) != Some("Unknown") {
                silent.push((node.clone(), health.clone()));
            }
            self.known.insert(name, NodeRecord { node, health, ticket, seen: self.checks });
        }
        let checks = self.checks;
        let (known, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.known).into_iter().partition(|(_, known)| known.seen == checks);
        self.known = known;
        gone.values().for_each(|gone| self.record_removal(&gone.node));
        silent
    }

    fn lease(&self, node: &str) -> Option<Arc<Lease>> {
        self.leases.get(&Key::new(self.context.names.node_lease_namespace(), node))
    }

    fn record(&self, node: &Node, reason: &str, what: &str) {
        let message = format!("Node {} event: {what}", node.name());
        self.context.events.record(node, EventType::Normal, reason, message);
    }

    fn record_removal(&self, node: &Node) {
        self.record(node, "RemovingNode", &format!("Removing Node {} from Controller", node.name()));
    }

    /// Sets the conditions of a node to `Unknown`, unless a heartbeat has come meanwhile. Returns the node as written.
    async fn mark_lost(&self, (node, health): &(Arc<Node>, Health), now: &Moment) -> Option<Node> {
        let decide = |node: &Node| {
            let lease = self.lease(node.name());
            let health = Health::observe(Some(health), node, lease.as_deref(), now);
            let conditions = health
                .is_silent(now, &self.options)
                .then(|| health::unknown(node, now.time, &self.context.names.agent))??;
            let conditions: Value = conditions.iter().map(client::json_value).collect();
            Some(json!({"status": {"conditions": conditions}}))
        };
        let lost = nodes::patch(&self.context.client, node, Part::Status, decide).await;
        let lost = or_later(node, lost);
        if lost.is_some() && nodes::ready(node) == Some("True") {
            nodes::record_state(&self.context.events, node, "NodeNotReady");
        }
        lost
    }

    /// Takes over nodes as they were written.
    fn replace(&mut self, written: impl IntoIterator<Item = Node>) {
        for node in written {
            if let Some(known) = self.known.get_mut(node.name()) {
                known.node = Arc::new(node);
            }
        }
    }

    fn count(&self) -> BTreeMap<String, Count> {
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        for NodeRecord { node, .. } in self.known.values() {
            let count = counts.entry(self.taint_names.zone_of(node)).or_default();
            if self.taint_names.counts(node) {
                match nodes::ready(node) {
                    Some("True") => count.ready += 1,
                    _ => count.not_ready += 1,
                }
            }
        }
        counts
    }

    /// Queues the nodes to be evicted. Returns the nodes with wrong taints.
    fn plan_evictions(&mut self) -> Vec<Arc<Node>> {
        let allowed = !self.zones.is_disrupted();
        let mut wrong = Vec::new();
        self.zones.clear();
        for (name, known) in &mut self.known {
            match self.taint_names.eviction_taint(&known.node, allowed) {
                EvictionTaint::Right => known.ticket = None,
                EvictionTaint::Missing => {
                    let ticket = *known.ticket.get_or_insert_with(|| {
                        self.tickets += 1;
                        self.tickets
                    });
                    self.zones.wait(&self.taint_names.zone_of(&known.node), ticket, name);
                }
                EvictionTaint::Wrong => {
                    known.ticket = None;
                    wrong.push(known.node.clone());
                }
            }
        }
        wrong
    }

    /// Taints the nodes whose eviction is admitted now.
    async fn evict_due(&mut self) {
        let now = self.moment();
        for name in self.zones.due(now.elapsed) {
            let Some(node) = self.known.get(&name).map(|it| it.node.clone()) else { continue };
            if let Some(tainted) = self.taint(&node, true, &now).await {
                self.metrics.evicted(&self.taint_names.zone_of(&tainted));
                self.replace([tainted]);
            }
        }
    }

    async fn taint(&self, node: &Node, wanted: bool, now: &Moment) -> Option<Node> {
        let decide = |node: &Node| self.taint_names.no_execute(node, wanted, now.time);
        or_later(node, nodes::patch(&self.context.client, node, Part::Main, decide).await)
    }
}

impl NodeRecord {
    /// Whether the node will be lost unless its heartbeat comes, which is overdue.
    fn is_fading(&self, now: Duration) -> bool {
        now.saturating_sub(self.health.last_seen) > OVERDUE && nodes::ready(&self.node) != Some("Unknown")
    }
}

/// Whether a check is so late that heartbeats may be delayed as well.
fn is_late(last: Option<Duration>, now: Duration, period: Duration) -> bool {
    last.is_some_and(|last| now.saturating_sub(last) > LATE * period)
}

/// Logs a failed write; the next check decides again.
fn or_later(node: &Node, written: Result<Option<Node>, Failure>) -> Option<Node> {
    match written {
        Ok(written) => written,
        Err(why) => {
            tracing::info!(controller = "nodelifecycle", node = node.name(), %why, "a node could not be written; the next check tries again");
            None
        }
    }
}

/// Runs writes concurrently. Returns the written nodes.
async fn at_once(writing: Vec<impl Future<Output = Option<Node>>>) -> Vec<Node> {
    stream::iter(writing).buffer_unordered(AT_ONCE).filter_map(future::ready).collect().await
}

async fn reached(world: &World, at: Option<Duration>) {
    match at {
        Some(at) => world.sleep_until(at).await,
        None => future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_late_after_more_than_two_periods() {
        let late = |last: Option<u64>, now| {
            is_late(last.map(Duration::from_secs), Duration::from_secs(now), Duration::from_secs(5))
        };
        assert!(!late(None, 1000), "health counts from the first check");
        assert!(!late(Some(100), 105) && !late(Some(100), 110));
        assert!(late(Some(100), 111));
        assert!(!late(Some(111), 116), "the next one is on time");
    }
}
