//! Which pods end so that a critical pod finds room on a full node.
//!
//! Everything here is pure. As few pods as possible end, and rather those of a lower QoS class: the guaranteed pods
//! that are needed even if all others ended come first, then the burstable pods that are needed beside them, then the
//! pods of best effort. Within a class the pod whose requests come nearest to what is missing goes first, until
//! nothing is missing. The choice and its messages are upstream's.

use crate::pod::worker::KillRequest;
use crate::pod_facts::{CPU, QosClass, is_preemptable, pod_requests, qos_class};
use crate::status::generate::Eviction;
use api::Quantity;
use api::core::v1::Pod;
use std::sync::Arc;

/// The resource that counts pods.
pub const PODS: &str = "pods";
/// The reason of the event and the status of a pod that makes room.
pub const REASON: &str = "Preempting";
pub const MESSAGE: &str = "Preempted in order to admit critical pod";

/// What is missing of a resource: of CPUs in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    pub resource: String,
    pub missing: i64,
}

/// An amount of a resource in the unit of shortages.
pub fn amount(resource: &str, quantity: &Quantity) -> i64 {
    if resource == CPU { quantity.milli() } else { quantity.whole() }
}

/// The end of a pod that makes room: with its own grace period.
pub fn kill_request() -> KillRequest {
    let (reason, message) = (REASON.to_owned(), MESSAGE.to_owned());
    KillRequest { grace: None, eviction: Some(Eviction { reason, message, is_disruption: false }) }
}

/// A pod that may go, and what it frees of each shortage.
#[derive(Clone)]
struct Candidate {
    pod: Arc<Pod>,
    frees: Vec<i64>,
    /// Memory, then CPUs: of two pods as near, the smaller one goes.
    size: [i64; 2],
}

/// What is missing of each resource; negative where there is more than enough.
#[derive(Clone)]
struct Shortfall(Vec<i64>);

impl Shortfall {
    fn without(&self, freed: &[Candidate]) -> Shortfall {
        let rest = |at: usize, missing: i64| {
            freed.iter().fold(missing, |missing, it| missing.saturating_sub(it.frees[at]))
        };
        Shortfall(self.0.iter().enumerate().map(|(at, missing)| rest(at, *missing)).collect())
    }

    fn is_met(&self) -> bool {
        self.0.iter().all(|it| *it <= 0)
    }

    /// How far a pod is from freeing all: the sum of squares of the shares that would still be missing.
    fn distance(&self, pod: &Candidate) -> f64 {
        let open = self.0.iter().zip(&pod.frees).filter(|(missing, _)| **missing > 0);
        let share = |(missing, frees): (&i64, &i64)| {
            let rest = missing.saturating_sub(*frees).max(0);
            // the precision of a float is enough for a share
            (rest as f64 / *missing as f64).powi(2)
        };
        open.map(share).sum()
    }
}

/// The pods that end so that nothing is missing for another one. The error says what no set of pods frees.
pub fn victims(preemptor: &Pod, pods: &[Arc<Pod>], shortages: &[Shortage]) -> Result<Vec<Arc<Pod>>, String> {
    let missing = Shortfall(shortages.iter().map(|it| it.missing).collect());
    let of_class = |class: QosClass| -> Vec<Candidate> {
        let may_go = |pod: &&Arc<Pod>| is_preemptable(preemptor, pod) && qos_class(pod) == class;
        pods.iter().filter(may_go).map(|pod| candidate(pod, shortages)).collect()
    };
    let [best_effort, burstable, guaranteed] =
        [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed].map(of_class);
    let rest = missing.without(&best_effort).without(&burstable);
    let last = rest.without(&guaranteed);
    if !last.is_met() {
        return Err(format!("no set of running pods found to reclaim resources: {}", text(shortages, &last)));
    }
    let guaranteed = nearest(guaranteed, rest);
    let burstable = nearest(burstable, missing.without(&best_effort).without(&guaranteed));
    let best_effort = nearest(best_effort, missing.without(&burstable).without(&guaranteed));
    let all = best_effort.into_iter().chain(burstable).chain(guaranteed);
    Ok(all.map(|it| it.pod).collect())
}

fn candidate(pod: &Arc<Pod>, shortages: &[Shortage]) -> Candidate {
    let requests = pod_requests(pod);
    let of = |name: &str| match name {
        PODS => 1,
        _ => requests.get(name).map_or(0, |it| amount(name, it)),
    };
    let frees = shortages.iter().map(|it| of(&it.resource)).collect();
    Candidate { pod: pod.clone(), frees, size: [of(crate::pod_facts::MEMORY), of(CPU)] }
}

/// The pods of a class that free what is missing, the nearest first. All of them together free it.
fn nearest(mut pods: Vec<Candidate>, mut missing: Shortfall) -> Vec<Candidate> {
    let mut chosen = Vec::new();
    while !missing.is_met() {
        let order = |a: &Candidate, b: &Candidate| {
            missing.distance(a).total_cmp(&missing.distance(b)).then_with(|| a.size.cmp(&b.size))
        };
        let first = (0..pods.len()).min_by(|a, b| order(&pods[*a], &pods[*b]));
        let Some(first) = first else { break };
        let pod = pods.remove(first);
        missing = missing.without(std::slice::from_ref(&pod));
        chosen.push(pod);
    }
    chosen
}

fn text(shortages: &[Shortage], missing: &Shortfall) -> String {
    let open = shortages.iter().zip(&missing.0).filter(|(_, missing)| **missing > 0);
    let items: String = open.map(|(it, missing)| format!("(res: {}, q: {missing}), ", it.resource)).collect();
    format!("[{items}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod as `name priority cpu/memory[/cpu/memory]`: requests, and limits if it is guaranteed.
    fn pod(text: &str) -> Arc<Pod> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let list = |cpu: &str, memory: &str| match (cpu, memory) {
            ("0", "0") => "{}".to_owned(),
            _ => format!(r#"{{"cpu":"{cpu}","memory":"{memory}"}}"#),
        };
        let amounts: Vec<&str> = words[2].split('/').collect();
        let requests = list(amounts[0], amounts[1]);
        let limits = if amounts.len() == 3 { requests.clone() } else { "{}".to_owned() };
        let json = format!(
            r#"{{"metadata":{{"name":"{}"}},"spec":{{"priority":{},
                "containers":[{{"resources":{{"requests":{requests},"limits":{limits}}}}}]}}}}"#,
            words[0], words[1]
        );
        Arc::new(api::from_json(json.as_bytes()).unwrap())
    }

    #[test]
    fn few_pods_of_low_classes_make_room() {
        let usual = "free 0 0/0, free2 0 0/0, small 0 100m/100Mi, large 0 300m/300Mi, \
                     own 0 100m/100Mi/=, own2 0 400m/300Mi/=, critical 2000000000 1/1Gi";
        let cases = [
            ("", usual, "cpu=100", "small"),
            ("", usual, "memory=104857601", "large"),
            ("", usual, "cpu=350", "large small"),
            ("", usual, "cpu=350 memory=1", "large small"),
            ("", usual, "pods=1", "free"),
            ("", usual, "pods=2", "free free2"),
            ("", usual, "pods=2 cpu=300", "free large"),
            // the burstable ones that are needed beside the guaranteed one
            ("", usual, "cpu=450", "large small own"),
            ("", usual, "cpu=801", "large small own2 own"),
            ("", usual, "cpu=901", "! [(res: cpu, q: 1), ]"),
            ("", usual, "cpu=50 example.com/gpu=2", "! [(res: example.com/gpu, q: 2), ]"),
            // of two that are as near, the one with the smaller requests
            ("", "a 0 500m/200Mi, b 0 500m/100Mi", "cpu=500", "b"),
            ("", "a 0 500m/100Mi, b 0 400m/100Mi", "memory=1", "b"),
            // a pod of higher priority may take the place of a critical one
            ("2000001000", "critical 2000000000 1/1Gi", "cpu=10", "critical"),
            ("2000000000", "critical 2000000000 1/1Gi", "cpu=10", "! [(res: cpu, q: 10), ]"),
        ];
        for (priority, pods, shortages, expected) in cases {
            let priority = if priority.is_empty() { "2000000000" } else { priority };
            let preemptor = pod(&format!("p {priority} 1/1"));
            let pods: Vec<Arc<Pod>> = pods.split(',').map(pod).collect();
            let pairs = shortages.split_whitespace().filter_map(|it| it.split_once('='));
            let all: Vec<Shortage> = pairs
                .map(|(name, it)| Shortage { resource: name.to_owned(), missing: it.parse().unwrap() })
                .collect();
            let found = match victims(&preemptor, &pods, &all) {
                Ok(found) => {
                    found.iter().map(|it| it.metadata.name.clone()).collect::<Vec<String>>().join(" ")
                }
                Err(why) => {
                    let why = why.strip_prefix("no set of running pods found to reclaim resources:");
                    format!("!{}", why.unwrap())
                }
            };
            assert_eq!(found, expected, "{shortages} of {priority}");
        }
    }
}
