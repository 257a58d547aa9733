//! The choice between nodes on which preemption would help.

use std::sync::Arc;

use crate::extender::Candidate;
use crate::pod_info::PodInfo;

/// By what candidates are compared, the smaller the better: violated budgets, the highest priority, the sum of
/// priorities, the number of victims.
fn rank(candidate: &Candidate) -> (usize, i32, i64, usize) {
    let highest = candidate.victims.first().map_or(i32::MIN, |pod| pod.priority());
    // every pod counts, also one with a negative priority
    let weight = |pod: &Arc<PodInfo>| i64::from(pod.priority()) + i64::from(i32::MAX) + 1;
    let sum = candidate.victims.iter().map(weight).fold(0, i64::saturating_add);
    (candidate.violations, highest, sum, candidate.victims.len())
}

/// The earliest start of the victims with the highest priority.
fn earliest_start(candidate: &Candidate) -> i64 {
    let highest = candidate.victims.iter().map(|pod| pod.priority()).max();
    let most = candidate.victims.iter().filter(|pod| Some(pod.priority()) == highest);
    most.map(|pod| pod.start_time()).min().unwrap_or(i64::MIN)
}

/// The best candidate, and the nodes that are as good. Of equal ranks, the one whose victims started last.
pub fn pick(candidates: Vec<Candidate>) -> Option<(Candidate, Vec<String>)> {
    let least = candidates.iter().map(rank).min()?;
    let best = candidates.into_iter().filter(|one| rank(one) == least);
    // read once: victims may start meanwhile
    let mut best: Vec<(i64, Candidate)> = best.map(|one| (earliest_start(&one), one)).collect();
    let latest = best.iter().map(|(start, _)| *start).max()?;
    best.retain(|(start, _)| *start == latest);
    let names = best.iter().map(|(_, one)| one.node.clone()).collect();
    Some((best.swap_remove(0).1, names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;

    fn candidate(node: &str, violations: usize, victims: &[(i32, &str)]) -> Candidate {
        let pod = |(priority, start): &(i32, &str)| {
            let json = format!(r#"{{"spec":{{"priority":{priority}}},"status":{{"startTime":"{start}"}}}}"#);
            Arc::new(PodInfo::new(Arc::new(from_json(json.as_bytes()).unwrap())))
        };
        Candidate { node: node.to_owned(), victims: victims.iter().map(pod).collect(), violations }
    }

    #[test]
    fn ranks_decide_before_start_times() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let best = |candidates: Vec<Candidate>| pick(candidates).unwrap().1;
        let (a, b) = (|v: &[_]| candidate("a", 0, v), |v: &[_]| candidate("b", 0, v));
        assert_eq!(best(vec![candidate("a", 1, &[(1, late)]), b(&[(5, early)])]), ["b"]);
        assert_eq!(best(vec![a(&[(5, late)]), b(&[(1, early), (1, early)])]), ["b"]);
        assert_eq!(best(vec![a(&[(5, late), (-3, late)]), b(&[(5, early)])]), ["b"]);
        assert_eq!(best(vec![a(&[(5, early)]), b(&[(5, late)])]), ["b"]);
        assert_eq!(best(vec![a(&[(5, early)]), b(&[(5, early)])]), ["a", "b"]);
    }
}
