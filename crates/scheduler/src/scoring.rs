//! Scores of the nodes that passed the filters.

use crate::cycle_state::{CycleState, LOCAL_SCORES};
use crate::evaluation::Evaluation;
use crate::found_nodes::{FoundNodes, NodeWindow};
use crate::framework::profile::Plugin;
use crate::framework::{MAX_NODE_SCORE, Rejection};
use crate::node_groups::Representatives;
use crate::node_info::{NodeInfo, Slot};
use crate::plugins::{
    inter_pod_affinity, node_affinity, pod_topology_spread, selector_spread, taint_toleration,
    volume_binding, volume_capacity,
};

/// The nodes with the highest score.
pub(crate) fn highest<T: Copy>(nodes: &[T], scores: &[i64]) -> Vec<T> {
    let most = scores.iter().max();
    let best = nodes.iter().zip(scores).filter(|(_, score)| Some(*score) == most);
    best.map(|(node, _)| *node).collect()
}

impl Evaluation<'_> {
    /// The nodes with the highest score.
    pub(crate) fn best(&self, state: &mut CycleState, found: &FoundNodes) -> Result<FoundNodes, Rejection> {
        match found {
            FoundNodes::Window(window) if self.has_groups(state) => {
                let groups = self.group(state, window);
                let best = highest(&groups.ids, &self.totals(state, &groups.nodes, &groups.sizes)?);
                Ok(FoundNodes::Window(state.groups.select(window, &best)))
            }
            _ => {
                let nodes = found.to_vec();
                Ok(FoundNodes::List(highest(&nodes, &self.scores(state, &nodes)?)))
            }
        }
    }

    /// The weighted sums of the scores of nodes.
    pub(crate) fn scores(&self, state: &mut CycleState, nodes: &[Slot]) -> Result<Vec<i64>, Rejection> {
        match self.plugins().score.is_empty() {
            true => Ok(vec![1; nodes.len()]),
            false => self.totals(state, nodes, &vec![1; nodes.len()]),
        }
    }

    /// The weighted sums of the scores of nodes, of which each stands for a number of equal ones.
    fn totals(&self, state: &mut CycleState, nodes: &[Slot], sizes: &[usize]) -> Result<Vec<i64>, Rejection> {
        let mut totals = vec![0i64; nodes.len()];
        for (plugin, weight) in &self.plugins().score {
            let scores = self.timer.run(*plugin, "Score", || self.score_by(*plugin, state, nodes, sizes));
            let Some(scores) = scores? else { continue };
            for (total, score) in totals.iter_mut().zip(scores) {
                *total = total.saturating_add(score.clamp(0, MAX_NODE_SCORE).saturating_mul(*weight));
            }
        }
        Ok(totals)
    }

    /// Whether nodes can be scored by groups. The first pod of a class scores each node, and prepares what groups are
    /// found by.
    fn has_groups(&self, state: &CycleState) -> bool {
        let scores = |plugin: Plugin| self.plugins().score.iter().any(|(one, _)| *one == plugin);
        state.is_of_class()
            && self.profile.has_equal_scores()
            && (state.soft_spread.is_some() || !scores(Plugin::PodTopologySpread))
            && (state.preferred_pods.is_some() || !scores(Plugin::InterPodAffinity))
    }

    fn group(&self, state: &mut CycleState, window: &NodeWindow) -> Representatives {
        let mut groups = std::mem::take(&mut state.groups);
        let (spread, preferred) = (state.soft_spread.as_ref(), state.preferred_pods.as_ref());
        let width = LOCAL_SCORES.len() + spread.map_or(0, |it| it.len()) + preferred.map_or(0, |it| it.len());
        let topology = self.snapshot.topology();
        let found = groups.gather(window, width, |slot, key| {
            key.extend(LOCAL_SCORES.map(|plugin| self.known_score(plugin, state, slot)));
            spread.iter().for_each(|spread| spread.append_key(topology, slot, key));
            preferred.iter().for_each(|preferred| preferred.append_key(topology, slot, key));
        });
        state.groups = groups;
        found
    }

    /// The normalized scores of one plugin; `None` if all nodes have the same.
    fn score_by(
        &self,
        plugin: Plugin,
        state: &mut CycleState,
        nodes: &[Slot],
        sizes: &[usize],
    ) -> Result<Option<Vec<i64>>, Rejection> {
        Ok(match plugin {
            Plugin::TaintToleration => {
                let mut scores = self.scores_local(plugin, state, nodes);
                taint_toleration::normalize(&mut scores);
                Some(scores)
            }
            Plugin::NodeAffinity => {
                state.affinity.check()?;
                let mut scores = self.scores_local(plugin, state, nodes);
                node_affinity::normalize(&mut scores);
                Some(scores)
            }
            Plugin::NodeResourcesFit | Plugin::NodeResourcesBalancedAllocation | Plugin::ImageLocality => {
                Some(self.scores_local(plugin, state, nodes))
            }
            Plugin::PodTopologySpread => self.score_spread(state, nodes, sizes)?,
            Plugin::InterPodAffinity => self.score_preferred_pods(state, nodes)?,
            Plugin::SelectorSpread => selector_spread::scores(self.pod, self.snapshot, &self.infos(nodes)),
            Plugin::VolumeBinding => self.score_volumes(state, nodes),
            _ => None,
        })
    }

    fn infos(&self, nodes: &[Slot]) -> Vec<&NodeInfo> {
        nodes.iter().filter_map(|slot| self.snapshot.slot(*slot)).collect()
    }

    /// Only profiles with the gate VolumeCapacityPriority have a shape.
    fn score_volumes(&self, state: &CycleState, nodes: &[Slot]) -> Option<Vec<i64>> {
        let shape = &self.profile.profile.args.volume_binding.shape;
        if shape.is_empty() {
            return None;
        }
        let score = |node: &&NodeInfo| {
            let volumes = volume_binding::find_volumes(&state.volumes, node, &self.snapshot.storage);
            volumes.map_or(0, |volumes| volume_capacity::score(shape, &volumes))
        };
        Some(self.infos(nodes).iter().map(score).collect())
    }

    fn scores_local(&self, plugin: Plugin, state: &CycleState, nodes: &[Slot]) -> Vec<i64> {
        nodes.iter().map(|slot| self.known_score(plugin, state, *slot)).collect()
    }

    /// The score of a node before normalization, from the results of the class if they have it.
    fn known_score(&self, plugin: Plugin, state: &CycleState, slot: Slot) -> i64 {
        let known = || {
            let result = state.results.as_ref()?.by_slot.get(slot)?;
            let is_current =
                result.generation == self.snapshot.generation_of(slot) && result.rejection.is_none();
            let at = LOCAL_SCORES.iter().position(|one| *one == plugin).filter(|_| is_current)?;
            Some(result.scores[at])
        };
        let calculate = || self.snapshot.slot(slot).map(|node| self.score_local(plugin, state, node));
        known().or_else(calculate).unwrap_or(0)
    }

    fn score_spread(
        &self,
        state: &mut CycleState,
        nodes: &[Slot],
        sizes: &[usize],
    ) -> Result<Option<Vec<i64>>, Rejection> {
        let pod = &**self.pod;
        let is_of_class = state.is_of_class();
        let spread = match &mut state.soft_spread {
            Some(spread) => spread,
            None => state.soft_spread.insert(pod_topology_spread::pre_score(
                pod,
                &state.affinity.required,
                &self.profile.spread,
                self.snapshot,
                is_of_class,
            )?),
        };
        if spread.is_empty() {
            return Ok(None);
        }
        spread.weigh(self.snapshot.topology(), nodes, sizes);
        let score = |slot: &Slot| pod_topology_spread::score(spread, pod, self.snapshot, *slot);
        Ok(Some(pod_topology_spread::normalize(&nodes.iter().map(score).collect::<Vec<_>>())))
    }

    fn score_preferred_pods(
        &self,
        state: &mut CycleState,
        nodes: &[Slot],
    ) -> Result<Option<Vec<i64>>, Rejection> {
        let weight = self.profile.profile.args.inter_pod_affinity.hard_pod_affinity_weight;
        let preferred = match &mut state.preferred_pods {
            Some(preferred) => preferred,
            None => {
                state.preferred_pods.insert(inter_pod_affinity::pre_score(self.pod, weight, self.snapshot)?)
            }
        };
        if preferred.is_empty() {
            return Ok(None);
        }
        let topology = self.snapshot.topology();
        let score = |slot: &Slot| inter_pod_affinity::score(preferred, topology, *slot);
        let mut scores: Vec<i64> = nodes.iter().map(score).collect();
        inter_pod_affinity::normalize(preferred, &mut scores);
        Ok(Some(scores))
    }
}
