//! DefaultPreemption: the pods to delete so that a pod of higher priority fits.
//!
//! Every node on which removal might help is tried without its pods of lower priority; the pods are then put back, the
//! most important first, as long as the pod still fits. The best node is the one whose victims matter least.

mod candidates;
mod victims;

use std::sync::Arc;

use crate::cycle_state::CycleState;
use crate::evaluation::Evaluation;
use crate::extender::{Candidate, Extender, filter_candidates};
use crate::framework::{Code, Diagnosis, Rejection};
use crate::node_info::Slot;
use crate::pod_info::PodInfo;
use candidates::pick;
use victims::select_victims;

/// The node on which pods are to be deleted.
#[derive(Debug, Clone)]
pub struct Preemption {
    pub node: String,
    pub victims: Vec<Arc<PodInfo>>,
    /// Nodes that are as good, this one included.
    pub best: Vec<String>,
    /// Pods of lower priority that were nominated for the node: they must look for another one.
    pub displaced: Vec<Arc<PodInfo>>,
}

/// Why no pod is preempted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The pod may not preempt now.
    NotEligible(String),
    NoCandidates(String),
    /// The dry run failed; the message of the pod does not mention it.
    Error(String),
}

/// Finds the pods to delete; `random` chooses where the search starts.
pub fn preempt(
    evaluation: &Evaluation<'_>,
    state: &mut CycleState,
    diagnosis: &Diagnosis,
    random: u64,
    extenders: &[Box<dyn Extender>],
) -> Result<Preemption, Refusal> {
    check_eligible(evaluation, diagnosis)?;
    let is_helpful = |slot: &Slot| diagnosis.code(*slot) != Some(Code::UnschedulableAndUnresolvable);
    let order = evaluation.snapshot.order();
    let potential: Vec<Slot> = order.iter().copied().filter(is_helpful).collect();
    let mut failed = Diagnosis::default();
    let (candidates, errors) = dry_run(evaluation, state, &potential, &mut failed, random);
    if let (true, Some(error)) = (candidates.is_empty(), errors.into_iter().next()) {
        return Err(Refusal::Error(error));
    }
    if candidates.is_empty() {
        let not_helpful = Arc::new(Rejection::unresolvable("Preemption is not helpful for scheduling"));
        let others = order.iter().filter(|slot| !is_helpful(slot));
        others.for_each(|slot| failed.reject(*slot, Arc::clone(&not_helpful)));
        return Err(Refusal::NoCandidates(failed.message(failed.rejections())));
    }
    let candidates = filter_candidates(extenders, evaluation.pod, candidates, evaluation.snapshot)
        .map_err(Refusal::Error)?;
    let (chosen, best) = pick(candidates)
        .ok_or_else(|| Refusal::NotEligible("no candidate node for preemption".to_owned()))?;
    let mut displaced = evaluation.nominator.nominated_on(&chosen.node);
    displaced.retain(|other| other.priority() < evaluation.pod.priority());
    Ok(Preemption { node: chosen.node, victims: chosen.victims, best, displaced })
}

fn check_eligible(evaluation: &Evaluation<'_>, diagnosis: &Diagnosis) -> Result<(), Refusal> {
    let pod = &evaluation.pod.pod;
    if pod.spec.preemption_policy.as_deref() == Some("Never") {
        return Err(Refusal::NotEligible("not eligible due to preemptionPolicy=Never.".to_owned()));
    }
    let Some(node) = evaluation.snapshot.node(&pod.status.nominated_node_name) else { return Ok(()) };
    if diagnosis.code(node.slot) == Some(Code::UnschedulableAndUnresolvable) {
        return Ok(());
    }
    let makes_room =
        |other: &Arc<PodInfo>| other.is_terminating() && other.priority() < evaluation.pod.priority();
    match node.pods.iter().any(makes_room) {
        true => Err(Refusal::NotEligible(
            "not eligible due to a terminating pod on the nominated node.".to_owned(),
        )),
        false => Ok(()),
    }
}

/// Tries the nodes from a random one on until enough candidates are found.
fn dry_run(
    evaluation: &Evaluation<'_>,
    state: &mut CycleState,
    potential: &[Slot],
    failed: &mut Diagnosis,
    random: u64,
) -> (Vec<Candidate>, Vec<String>) {
    let (mut candidates, mut violating, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    if potential.is_empty() {
        return (candidates, errors);
    }
    let args = &evaluation.profile.profile.args.default_preemption;
    let share = potential.len() as i64 * i64::from(args.min_candidate_nodes_percentage) / 100;
    let enough = share.max(args.min_candidate_nodes_absolute.into()).min(potential.len() as i64);
    let offset = (random % potential.len() as u64) as usize;
    let mut last: Option<Arc<Rejection>> = None;
    for step in 0..potential.len() {
        let slot = potential[(offset + step) % potential.len()];
        let Some(node) = evaluation.snapshot.slot(slot) else { continue };
        match select_victims(evaluation, state, node) {
            Ok(candidate) if candidate.violations == 0 => candidates.push(candidate),
            Ok(candidate) => violating.push(candidate),
            Err(rejection) => {
                if rejection.code == Code::Error {
                    errors.push(rejection.message());
                }
                // most nodes fail for the same reason
                let shared = match last.take() {
                    Some(last) if *last == rejection => last,
                    _ => Arc::new(rejection),
                };
                failed.reject(node.slot, Arc::clone(&shared));
                last = Some(shared);
                continue;
            }
        }
        if !candidates.is_empty() && (candidates.len() + violating.len()) as i64 >= enough {
            break;
        }
    }
    candidates.append(&mut violating);
    (candidates, errors)
}
