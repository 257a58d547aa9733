//! The look at all nodes, every few seconds: who was heard of, who was not, and what follows.
//!
//! What always holds: a look that comes late declares no node lost, because heartbeats may have waited as this loop did.
//! A look costs a little for each node and nothing for anything else; while there are no nodes there
//! are no looks. What is written is decided from what the node is when it is written.

use super::health::{self, Health, Moment};
use super::metrics::ZoneMetrics;
use super::options::Options;
use super::taints::{EvictionTaint, TaintNames};
use super::task::AT_ONCE;
use super::zones::{Count, Turn, Zones};
use crate::Context;
use crate::nodes::{self, Part};
use client::events::EventType;
use client::{Failure, Informer, Key};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

/// A look is late when so many periods have passed since the last one.
const LATE: u32 = 2;

pub(super) struct Monitor {
    context: Context,
    options: Options,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    taint_names: Arc<TaintNames>,
    metrics: ZoneMetrics,
    known: HashMap<String, NodeRecord>,
    zones: Zones,
    looks: u64,
    /// When the last look began.
    looked: Option<Duration>,
    tickets: u64,
}

struct NodeRecord {
    node: Arc<Node>,
    health: Health,
    /// Its place among those that wait to be emptied.
    ticket: Option<u64>,
    /// At which look it was there last.
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
        let (known, zones) = (HashMap::new(), Zones::new(options.rates));
        let (looks, looked, tickets) = (0, None, 0);
        Monitor {
            context,
            options,
            nodes,
            leases,
            taint_names,
            metrics,
            known,
            zones,
            looks,
            looked,
            tickets,
        }
    }

    /// Looks for ever; `news` tells of nodes that come.
    pub async fn run(mut self, news: Arc<Notify>) {
        let mut ticks = tokio::time::interval(self.options.period.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.known.is_empty() && self.nodes.is_empty() {
                news.notified().await;
                ticks.reset_immediately();
                continue;
            }
            let turn = self.zones.next().map(|at| at.saturating_sub(self.context.world.elapsed()));
            tokio::select! {
                _ = ticks.tick() => self.look().await,
                () = after(turn) => {}
            }
            self.empty().await;
        }
    }

    fn moment(&self) -> Moment {
        Moment { time: self.context.time(), elapsed: self.context.world.elapsed() }
    }

    async fn look(&mut self) {
        let now = self.moment();
        self.looks += 1;
        let mut silent = self.hear(&now);
        let last = self.looked.replace(now.elapsed);
        if is_late(last, now.elapsed, self.options.period) && !silent.is_empty() {
            tracing::warn!(nodes = silent.len(), "this look is late: silent nodes have until the next");
            silent.clear();
        }
        let lost = at_once(silent.iter().map(|known| self.lose(known, &now)).collect()).await;
        self.take(lost);
        let counts = self.count();
        match self.zones.counted(&counts, now.elapsed) {
            Turn::Nothing => {}
            Turn::AllDark => tracing::info!("no node is ready: nobody is sent away from nodes"),
            Turn::Back => {
                tracing::info!("some nodes are ready again");
                self.known.values_mut().for_each(|known| known.health.heard = now.elapsed);
            }
        }
        let wrong = self.judge();
        let wanted = !self.zones.is_dark();
        let mended = at_once(wrong.iter().map(|node| self.taint(node, wanted, &now)).collect()).await;
        self.take(mended);
        let took = self.context.world.elapsed().saturating_sub(now.elapsed);
        self.metrics.looked(counts, self.known.len(), took);
    }

    /// Finds out who was heard of, and gives those who were not for too long.
    fn hear(&mut self, now: &Moment) -> Vec<(Arc<Node>, Health)> {
        let mut silent = Vec::new();
        for node in self.nodes.all() {
            let name = node.name_any();
            let before = self.known.remove(&name);
            let same = before.as_ref().filter(|it| it.node.metadata.uid == node.metadata.uid);
            let health = Health::look(same.map(|it| &it.health), &node, self.lease(&name).as_deref(), now);
            let ticket = same.and_then(|it| it.ticket);
            if same.is_none() {
                before.iter().for_each(|it| self.tell_gone(&it.node));
                self.tell(&node, "RegisteredNode", &format!("Registered Node {name} in Controller"));
            }
            if health.is_silent(now, &self.options) && nodes::ready(&node) != Some("Unknown") {
                silent.push((node.clone(), health.clone()));
            }
            self.known.insert(name, NodeRecord { node, health, ticket, seen: self.looks });
        }
        let looks = self.looks;
        for (_, gone) in self.known.extract_if(|_, known| known.seen != looks).collect::<Vec<_>>() {
            self.tell_gone(&gone.node);
        }
        silent
    }

    fn lease(&self, node: &str) -> Option<Arc<Lease>> {
        self.leases.get(&Key::new(self.context.names.node_lease_namespace(), node))
    }

    fn tell(&self, node: &Node, reason: &str, what: &str) {
        let message = format!("Node {} event: {what}", node.name_any());
        self.context.events.tell(node, EventType::Normal, reason, message);
    }

    fn tell_gone(&self, node: &Node) {
        self.tell(node, "RemovingNode", &format!("Removing Node {} from Controller", node.name_any()));
    }

    /// Says of a node that nobody knows how it is, unless it was heard of after all. What it has become.
    async fn lose(&self, (node, health): &(Arc<Node>, Health), now: &Moment) -> Option<Node> {
        let decide = |node: &Node| {
            let lease = self.lease(&node.name_any());
            let health = Health::look(Some(health), node, lease.as_deref(), now);
            let conditions = health
                .is_silent(now, &self.options)
                .then(|| health::unknown(node, &now.time, &self.context.names.agent))??;
            Some(json!({"status": {"conditions": conditions}}))
        };
        let lost = nodes::patch(&self.context.client, node, Part::Status, decide).await;
        let lost = or_later(node, lost);
        if lost.is_some() && nodes::ready(node) == Some("True") {
            nodes::tell_state(&self.context.events, node, "NodeNotReady");
        }
        lost
    }

    /// Nodes as they are since they were written.
    fn take(&mut self, written: impl IntoIterator<Item = Node>) {
        for node in written {
            if let Some(known) = self.known.get_mut(&node.name_any()) {
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
                    _ => count.dark += 1,
                }
            }
        }
        counts
    }

    /// Has those wait who are to be emptied, and gives those whose taints are wrong.
    fn judge(&mut self) -> Vec<Arc<Node>> {
        let allowed = !self.zones.is_dark();
        let mut wrong = Vec::new();
        self.zones.clear();
        for (name, known) in &mut self.known {
            match self.taint_names.emptied(&known.node, allowed) {
                EvictionTaint::Right => known.ticket = None,
                EvictionTaint::NotYet => {
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

    /// Begins to empty those whose turn it is.
    async fn empty(&mut self) {
        let now = self.moment();
        for name in self.zones.due(now.elapsed) {
            let Some(node) = self.known.get(&name).map(|it| it.node.clone()) else { continue };
            if let Some(tainted) = self.taint(&node, true, &now).await {
                self.metrics.emptied(&self.taint_names.zone_of(&tainted));
                self.take([tainted]);
            }
        }
    }

    async fn taint(&self, node: &Node, wanted: bool, now: &Moment) -> Option<Node> {
        let decide = |node: &Node| self.taint_names.against_all(node, wanted, &now.time);
        or_later(node, nodes::patch(&self.context.client, node, Part::Main, decide).await)
    }
}

/// Whether a look comes so late that heartbeats may have waited for as long.
fn is_late(last: Option<Duration>, now: Duration, period: Duration) -> bool {
    last.is_some_and(|last| now.saturating_sub(last) > LATE * period)
}

/// What could not be written is decided again at the next look.
fn or_later(node: &Node, written: Result<Option<Node>, Failure>) -> Option<Node> {
    match written {
        Ok(written) => written,
        Err(why) => {
            tracing::info!(controller = "nodelifecycle", node = node.name_any(), %why, "failed, and is tried again");
            None
        }
    }
}

/// Some at a time; what they wrote.
async fn at_once(writing: Vec<impl Future<Output = Option<Node>>>) -> Vec<Node> {
    stream::iter(writing).buffer_unordered(AT_ONCE).filter_map(future::ready).collect().await
}

async fn after(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_late_after_more_than_two_periods() {
        let late = |last: Option<u64>, now| {
            is_late(last.map(Duration::from_secs), Duration::from_secs(now), Duration::from_secs(5))
        };
        assert!(!late(None, 1000), "the first look is what health counts from");
        assert!(!late(Some(100), 105) && !late(Some(100), 110));
        assert!(late(Some(100), 111));
        assert!(!late(Some(111), 116), "the next one is on time, and judges");
    }
}
