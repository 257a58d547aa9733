//! Scores of the nodes that passed the filters.

use crate::cycle_state::{CycleState, LOCAL_SCORES};
use crate::evaluation::Evaluation;
use crate::framework::profile::Plugin;
use crate::framework::{MAX_NODE_SCORE, Rejection};
use crate::node_info::{NodeInfo, Slot};
use crate::plugins::{
    inter_pod_affinity, node_affinity, pod_topology_spread, selector_spread, taint_toleration,
    volume_binding, volume_capacity,
};

impl Evaluation<'_> {
    /// The weighted sums of the scores of nodes.
    pub fn score(&self, state: &mut CycleState, nodes: &[Slot]) -> Result<Vec<i64>, Rejection> {
        if self.plugins().score.is_empty() {
            return Ok(vec![1; nodes.len()]);
        }
        let mut totals = vec![0i64; nodes.len()];
        for (plugin, weight) in &self.plugins().score {
            let scores = self.timer.run(*plugin, "Score", || self.score_by(*plugin, state, nodes));
            let Some(scores) = scores? else { continue };
            for (total, score) in totals.iter_mut().zip(scores) {
                *total = total.saturating_add(score.clamp(0, MAX_NODE_SCORE).saturating_mul(*weight));
            }
        }
        Ok(totals)
    }

    /// The normalized scores of one plugin; `None` if all nodes have the same.
    pub fn score_by(
        &self,
        plugin: Plugin,
        state: &mut CycleState,
        nodes: &[Slot],
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
            Plugin::PodTopologySpread => self.score_spread(state, nodes)?,
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
        let at = LOCAL_SCORES.iter().position(|one| *one == plugin);
        let known = |slot: Slot| {
            let result = state.results.as_ref()?.by_slot.get(slot)?;
            let is_current =
                result.generation == self.snapshot.generation_of(slot) && result.rejection.is_none();
            is_current.then(|| at.map(|at| result.scores[at])).flatten()
        };
        let calculate =
            |slot: Slot| self.snapshot.slot(slot).map_or(0, |node| self.score_local(plugin, state, node));
        nodes.iter().map(|slot| known(*slot).unwrap_or_else(|| calculate(*slot))).collect()
    }

    fn score_spread(&self, state: &mut CycleState, nodes: &[Slot]) -> Result<Option<Vec<i64>>, Rejection> {
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
        spread.weigh(self.snapshot.topology(), nodes);
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
