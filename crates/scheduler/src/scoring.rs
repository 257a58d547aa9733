//! Scores of the nodes that passed the filters.

use crate::cycle_state::{CycleState, LOCAL_SCORES};
use crate::evaluation::Evaluation;
use crate::framework::profile::Plugin;
use crate::framework::{MAX_NODE_SCORE, Rejection};
use crate::node_groups::Representatives;
use crate::node_info::{NodeInfo, Slot};
use crate::plugins::{
    inter_pod_affinity, node_affinity, pod_topology_spread, selector_spread, taint_toleration,
    volume_binding, volume_capacity,
};

/// The scores of nodes. Nodes of a group share one.
pub(crate) struct Scores {
    of_groups: Vec<i64>,
    /// The group of each node.
    places: Vec<u32>,
}

impl Scores {
    /// Scores of single nodes.
    pub fn of_nodes(scores: Vec<i64>) -> Self {
        Scores { places: (0..scores.len() as u32).collect(), of_groups: scores }
    }

    /// The score of each node.
    pub fn of_each(&self) -> Vec<i64> {
        self.places.iter().map(|place| self.of_groups[*place as usize]).collect()
    }

    /// The nodes with the highest score, of those that were scored.
    pub fn best(&self, nodes: &[Slot]) -> Vec<Slot> {
        let most = self.of_groups.iter().max();
        let is_best: Vec<bool> = self.of_groups.iter().map(|score| Some(score) == most).collect();
        let best = nodes.iter().zip(&self.places).filter(|(_, place)| is_best[**place as usize]);
        best.map(|(slot, _)| *slot).collect()
    }
}

impl Evaluation<'_> {
    /// The weighted sums of the scores of nodes.
    pub(crate) fn score(&self, state: &mut CycleState, nodes: &[Slot]) -> Result<Scores, Rejection> {
        if self.plugins().score.is_empty() {
            return Ok(Scores::of_nodes(vec![1; nodes.len()]));
        }
        let groups = self.group(state, nodes);
        let mut totals = vec![0i64; groups.nodes.len()];
        for (plugin, weight) in &self.plugins().score {
            let scores = self.timer.run(*plugin, "Score", || self.score_by(*plugin, state, &groups));
            let Some(scores) = scores? else { continue };
            for (total, score) in totals.iter_mut().zip(scores) {
                *total = total.saturating_add(score.clamp(0, MAX_NODE_SCORE).saturating_mul(*weight));
            }
        }
        Ok(Scores { of_groups: totals, places: groups.places })
    }

    /// The nodes to score. The first pod of a class scores each of them, and prepares what groups are found by.
    fn group(&self, state: &mut CycleState, nodes: &[Slot]) -> Representatives {
        let scores = |plugin: Plugin| self.plugins().score.iter().any(|(one, _)| *one == plugin);
        let is_prepared = (state.soft_spread.is_some() || !scores(Plugin::PodTopologySpread))
            && (state.preferred_pods.is_some() || !scores(Plugin::InterPodAffinity));
        if !is_prepared || !state.is_of_class() || !self.profile.has_equal_scores() {
            return Representatives::single(nodes);
        }
        let mut groups = std::mem::take(&mut state.groups);
        let (spread, preferred) = (state.soft_spread.as_ref(), state.preferred_pods.as_ref());
        let width = LOCAL_SCORES.len() + spread.map_or(0, |it| it.len()) + preferred.map_or(0, |it| it.len());
        let topology = self.snapshot.topology();
        let found = groups.gather(nodes, width, |slot, key| {
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
        groups: &Representatives,
    ) -> Result<Option<Vec<i64>>, Rejection> {
        let nodes = &*groups.nodes;
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
            Plugin::PodTopologySpread => self.score_spread(state, groups)?,
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
            let volumes = volume_binding::find_volumes(&state.volumes, node);
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
        groups: &Representatives,
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
        spread.weigh(self.snapshot.topology(), &groups.nodes, &groups.sizes);
        let score = |slot: &Slot| pod_topology_spread::score(spread, pod, self.snapshot, *slot);
        Ok(Some(pod_topology_spread::normalize(&groups.nodes.iter().map(score).collect::<Vec<_>>())))
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
