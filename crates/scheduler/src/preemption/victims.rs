//! The pods of one node that must go for a pod to fit.

use std::sync::Arc;

use api::policy::v1::PodDisruptionBudget;

use crate::cycle_state::CycleState;
use crate::evaluation::Evaluation;
use crate::extender::Candidate;
use crate::framework::Rejection;
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;
use crate::selector::LabelMatcher;

/// Removes all pods of lower priority and puts back those that may stay. The state is as before afterwards.
pub fn select_victims(
    evaluation: &Evaluation<'_>,
    state: &mut CycleState,
    node: &NodeInfo,
) -> Result<Candidate, Rejection> {
    let lower = |other: &&Arc<PodInfo>| other.priority() < evaluation.pod.priority();
    let potential: Vec<Arc<PodInfo>> = node.pods.iter().filter(lower).cloned().collect();
    if potential.is_empty() {
        return Err(Rejection::unresolvable("No preemption victims found for incoming pod"));
    }
    if !state.is_complete() {
        return Err(Rejection::error("reading the state of PreFilter plugins"));
    }
    let mut trial = Trial { evaluation, state, node: node.clone(), removed: Vec::new() };
    for other in &potential {
        trial.remove(other);
    }
    let candidate = trial.find(potential);
    trial.undo();
    candidate
}

/// A node with pods removed.
struct Trial<'t, 'a> {
    evaluation: &'t Evaluation<'a>,
    state: &'t mut CycleState,
    node: NodeInfo,
    removed: Vec<Arc<PodInfo>>,
}

impl Trial<'_, '_> {
    fn remove(&mut self, pod: &Arc<PodInfo>) {
        self.node.remove_pod(pod.uid());
        self.evaluation.update(self.state, pod, &self.node, -1);
        self.removed.push(Arc::clone(pod));
    }

    fn restore(&mut self, pod: &Arc<PodInfo>) {
        self.node.add_pod(Arc::clone(pod));
        self.evaluation.update(self.state, pod, &self.node, 1);
        self.removed.retain(|one| one.uid() != pod.uid());
    }

    fn undo(mut self) {
        for pod in std::mem::take(&mut self.removed) {
            self.evaluation.update(self.state, &pod, &self.node, 1);
        }
    }

    fn find(&mut self, mut potential: Vec<Arc<PodInfo>>) -> Result<Candidate, Rejection> {
        let fits = self.evaluation.filter_with_nominated(self.state, &self.node);
        fits.map_err(|error| Rejection::clone(&error.rejection))?;
        potential.sort_by_cached_key(|pod| (std::cmp::Reverse(pod.priority()), pod.start_time()));
        let budgets = self.evaluation.snapshot.workloads.budgets.values();
        let (violating, others) = split_by_budgets(&potential, budgets.map(|budget| &**budget));
        let mut candidate =
            Candidate { node: self.node.name().to_owned(), victims: Vec::new(), violations: 0 };
        for pod in violating {
            candidate.violations += usize::from(self.reprieve(&pod, &mut candidate.victims));
        }
        for pod in others {
            self.reprieve(&pod, &mut candidate.victims);
        }
        match candidate.victims.is_empty() {
            false => Ok(candidate),
            true => {
                let node = self.node.name();
                Err(Rejection::error(format!("expected at least one victim pod on node {node:?}")))
            }
        }
    }

    /// Puts a pod back if the preemptor still fits; otherwise it is a victim.
    fn reprieve(&mut self, pod: &Arc<PodInfo>, victims: &mut Vec<Arc<PodInfo>>) -> bool {
        self.restore(pod);
        if self.evaluation.filter_with_nominated(self.state, &self.node).is_ok() {
            return false;
        }
        self.remove(pod);
        victims.push(Arc::clone(pod));
        true
    }
}

type Pods = Vec<Arc<PodInfo>>;

/// The pods whose deletion, in this order, would violate a budget, and the others.
fn split_by_budgets<'b>(
    pods: &[Arc<PodInfo>],
    budgets: impl Iterator<Item = &'b PodDisruptionBudget>,
) -> (Pods, Pods) {
    let parsed = budgets.filter_map(|budget| {
        let selector = LabelMatcher::new(budget.spec.selector.as_deref()).ok()?;
        Some((budget, selector, i64::from(budget.status.disruptions_allowed)))
    });
    let mut budgets: Vec<_> = parsed.collect();
    pods.iter().cloned().partition(|pod| {
        let mut is_violated = false;
        for (budget, selector, allowed) in &mut budgets {
            let applies = budget.metadata.namespace == pod.namespace()
                && !pod.labels().is_empty()
                && !selector.is_everything()
                && selector.matches(pod.labels())
                && !budget.status.disrupted_pods.contains_key(pod.name());
            if applies {
                *allowed -= 1;
                is_violated |= *allowed < 0;
            }
        }
        is_violated
    })
}
