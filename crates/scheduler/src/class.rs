//! Classes of pods: pods that are alike in everything that filters and scores read share their results.
//!
//! Pods of one template differ in name and uid only. The first ones of a class are evaluated on all nodes; for later
//! ones the results of nodes that did not change since are used again, and counts over all pods follow the changes. A
//! pod with resource claims, or with volumes that plugins read, is in no class.

use std::collections::VecDeque;
use std::sync::Arc;

use api::core::v1::{Container, Pod};

use crate::cycle_state::CycleState;
use crate::evaluation::CompiledProfile;
use crate::pod_info::PodInfo;

/// So many classes are kept.
const CLASSES: usize = 16;
/// A class is kept from its second pod on, if that comes within so many pods.
const RECENT: usize = 64;

/// A pod that stands for all that are alike in everything that filters and scores read.
#[derive(Debug, Clone)]
pub struct ClassKey(Arc<PodInfo>);

impl ClassKey {
    /// `None` for a pod that must be evaluated by itself.
    pub fn new(profile: &CompiledProfile, pod: &Arc<PodInfo>) -> Option<Self> {
        let has_claims = !pod.volumes.is_empty() || !pod.pod.spec.resource_claims.is_empty();
        (profile.has_local_results() && !has_claims).then(|| ClassKey(Arc::clone(pod)))
    }
}

impl PartialEq for ClassKey {
    fn eq(&self, other: &Self) -> bool {
        let (one, two) = (&self.0.pod, &other.0.pod);
        let (spec, other_spec) = (&one.spec, &two.spec);
        one.metadata.labels == two.metadata.labels
            && one.metadata.namespace == two.metadata.namespace
            && controller(one).eq(&controller(two))
            && spec.scheduler_name == other_spec.scheduler_name
            && spec.node_name == other_spec.node_name
            && has_equal_containers(&spec.containers, &other_spec.containers)
            && has_equal_containers(&spec.init_containers, &other_spec.init_containers)
            && self.0.host_ports == other.0.host_ports
            && spec.overhead == other_spec.overhead
            && spec.node_selector == other_spec.node_selector
            && spec.tolerations == other_spec.tolerations
            && spec.affinity == other_spec.affinity
            && spec.topology_spread_constraints == other_spec.topology_spread_constraints
    }
}

/// The version, kind and name of the pod's controller.
fn controller(pod: &Pod) -> Option<(&str, &str, &str)> {
    let owner = pod.metadata.owner_references.iter().find(|owner| owner.controller == Some(true))?;
    Some((&owner.api_version, &owner.kind, &owner.name))
}

fn has_equal_containers(containers: &[Container], others: &[Container]) -> bool {
    let is_equal = |(one, two): (&Container, &Container)| {
        one.resources.requests == two.resources.requests && one.image == two.image
    };
    containers.len() == others.len() && containers.iter().zip(others).all(is_equal)
}

/// The states of the classes used last.
#[derive(Debug, Default)]
pub struct ClassCache {
    /// The last used at the end.
    classes: VecDeque<(ClassKey, CycleState)>,
    /// Classes of which one pod was seen.
    recent: VecDeque<ClassKey>,
}

impl ClassCache {
    /// The state of a class; a plain one for a class that is not kept.
    pub fn take(&mut self, key: &ClassKey) -> CycleState {
        if let Some(at) = self.classes.iter().position(|(known, _)| known == key) {
            return self.classes.remove(at).map(|(_, state)| state).unwrap_or_default();
        }
        match self.recent.iter().position(|known| known == key) {
            Some(at) => {
                self.recent.remove(at);
                CycleState::for_class()
            }
            None => CycleState::default(),
        }
    }

    /// Keeps a state that was taken.
    pub fn put(&mut self, key: ClassKey, state: CycleState) {
        if !state.is_of_class() {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(key);
            return;
        }
        if self.classes.len() == CLASSES {
            self.classes.pop_front();
        }
        self.classes.push_back((key, state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle::{Cycle, Outcome};
    use crate::evaluation::Nominator;
    use crate::snapshot::Snapshot;
    use api::from_json;

    /// A small generator of numbers.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % limit
        }
    }

    fn set_node(snapshot: &mut Snapshot, random: &mut Random, at: u64) {
        let zone = random.below(3);
        let taint = match random.below(8) {
            0 => r#","taints":[{"key":"t","effect":"PreferNoSchedule"}]"#,
            1 => r#","taints":[{"key":"t","effect":"NoSchedule"}]"#,
            _ => "",
        };
        let json = format!(
            r#"{{"metadata":{{"name":"n{at}","labels":{{"kubernetes.io/hostname":"n{at}","zone":"z{zone}"}}}},
            "spec":{{"unschedulable":false{taint}}},
            "status":{{"allocatable":{{"cpu":"{}","memory":"8Gi","pods":"10"}}}}}}"#,
            2 + random.below(3)
        );
        snapshot.set_node(Arc::new(from_json(json.as_bytes()).unwrap()));
    }

    const TEMPLATES: [&str; 5] = [
        r#""containers":[{"name":"c","resources":{"requests":{"cpu":"500m"}}}]"#,
        r#""containers":[{"name":"c"}],"topologySpreadConstraints":[
            {"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"1"}}},
            {"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{"matchLabels":{"app":"0"}}},
            {"maxSkew":2,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway","nodeTaintsPolicy":"Honor","labelSelector":{"matchLabels":{"app":"1"}}}]"#,
        r#""containers":[{"name":"c"}],"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
            {"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"2"}}}]}}"#,
        r#""containers":[{"name":"c"}],"affinity":{"podAffinity":{
            "requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{"matchLabels":{"app":"3"}}}],
            "preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,"podAffinityTerm":{"topologyKey":"zone","labelSelector":{"matchLabels":{"app":"1"}}}}]}}"#,
        r#""priority":5,"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]"#,
    ];

    fn describe(outcome: &Outcome) -> String {
        match outcome {
            Outcome::Placed(placement) => {
                let mut best = placement.best.to_vec();
                best.sort();
                format!("{best:?}")
            }
            Outcome::Failed(failure) => {
                let nodes = failure.preemption.iter().map(|it| {
                    let mut best = it.best.clone();
                    best.sort();
                    best
                });
                format!("{} {:?}", failure.message(), nodes.collect::<Vec<_>>())
            }
        }
    }

    /// A placement leaves no node over its capacity, and no two pods of the template that repels itself on one node.
    fn check_node(snapshot: &Snapshot, name: &str, pod: &PodInfo) {
        let node = snapshot.node(name).unwrap();
        // a node that shrank may be over its capacity; a pod without requests goes there nevertheless
        let has_room = node.requested.milli_cpu <= node.allocatable.milli_cpu;
        assert!((has_room || pod.requests.milli_cpu == 0) && node.pods.len() <= 10, "{name}");
        let repelling = node.pods.iter().filter(|pod| !pod.required_anti_affinity().is_empty());
        assert!(repelling.count() <= 1, "{name}");
    }

    /// A cycle that keeps classes decides as one that keeps none.
    #[test]
    fn classes_change_no_decision() {
        for seed in 0..40 {
            let mut random = Random(seed);
            let mut snapshot = Snapshot::new();
            let world: env::World = env::Simulated::new(1, seed);
            let profile = CompiledProfile::default();
            let mut cycle = Cycle::new(Arc::clone(&world), 0);
            (0..8).for_each(|at| set_node(&mut snapshot, &mut random, at));
            let mut uids: Vec<String> = Vec::new();
            for step in 0..120u64 {
                match random.below(12) {
                    0 => {
                        let at = random.below(9);
                        set_node(&mut snapshot, &mut random, at);
                    }
                    1 => snapshot.remove_node(&format!("n{}", random.below(9))),
                    2 | 3 if !uids.is_empty() => {
                        let at = random.below(uids.len() as u64) as usize;
                        snapshot.remove_pod(&uids.swap_remove(at));
                    }
                    _ => {
                        let template = random.below(TEMPLATES.len() as u64) as usize;
                        let pod = template_pod(&step.to_string(), template);
                        let alone =
                            Cycle::new(Arc::clone(&world), 0).schedule(&profile, &mut snapshot, &(), &pod);
                        let outcome = cycle.schedule(&profile, &mut snapshot, &(), &pod);
                        assert_eq!(describe(&outcome), describe(&alone), "seed {seed}, step {step}");
                        if let Outcome::Placed(placement) = outcome {
                            snapshot.assume(&pod, &placement.node);
                            uids.push(step.to_string());
                            check_node(&snapshot, &placement.node, &pod);
                        }
                    }
                }
            }
        }
    }

    /// Pods that are nominated for nodes.
    #[derive(Default)]
    struct TestNominator(Vec<(String, Arc<PodInfo>)>);

    impl Nominator for TestNominator {
        fn nominated_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
            self.0.iter().filter(|(name, _)| name == node).map(|(_, pod)| Arc::clone(pod)).collect()
        }

        fn nominated(&self) -> Vec<Arc<PodInfo>> {
            self.0.iter().map(|(_, pod)| Arc::clone(pod)).collect()
        }

        fn nominated_nodes(&self) -> Vec<&str> {
            self.0.iter().map(|(name, _)| &**name).collect()
        }
    }

    fn template_pod(name: &str, template: usize) -> Arc<PodInfo> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}","namespace":"a","labels":{{"app":"{template}"}}}},"spec":{{{}}}}}"#,
            TEMPLATES[template]
        );
        Arc::new(PodInfo::new(Arc::new(from_json(json.as_bytes()).unwrap())))
    }

    /// A search that skips nodes finds what one over single nodes finds, and ends where that one ends.
    #[test]
    fn skipped_nodes_change_no_search() {
        const NODES: u64 = 210;
        for seed in 0..4 {
            let mut random = Random(seed);
            let (mut snapshot, profile) = (Snapshot::new(), CompiledProfile::default());
            (0..NODES).for_each(|at| set_node(&mut snapshot, &mut random, at));
            let new = || Cycle::new(env::Simulated::new(1, seed), 0);
            let (mut sharing, mut alone) = (new(), new());
            let mut nominated = TestNominator::default();
            let mut uids: Vec<String> = Vec::new();
            for step in 0..250u64 {
                match random.below(20) {
                    0 => {
                        let at = random.below(NODES);
                        set_node(&mut snapshot, &mut random, at);
                    }
                    1 if !uids.is_empty() => {
                        let at = random.below(uids.len() as u64) as usize;
                        snapshot.remove_pod(&uids.swap_remove(at));
                    }
                    2 => {
                        let template = random.below(TEMPLATES.len() as u64) as usize;
                        let name = format!("n{}", random.below(NODES));
                        nominated.0.push((name, template_pod(&format!("nominated-{step}"), template)));
                        nominated.0.drain(..nominated.0.len().saturating_sub(5));
                    }
                    _ => {}
                }
                let name = format!("p{step}");
                let pod = template_pod(&name, random.below(TEMPLATES.len() as u64) as usize);
                alone.forget_classes();
                let expected = alone.schedule(&profile, &mut snapshot, &nominated, &pod);
                let outcome = sharing.schedule(&profile, &mut snapshot, &nominated, &pod);
                assert_eq!(describe(&outcome), describe(&expected), "seed {seed}, step {step}");
                if let (Outcome::Placed(one), Outcome::Placed(other)) = (outcome, expected) {
                    let sizes = (other.evaluated, other.feasible);
                    assert_eq!((one.evaluated, one.feasible), sizes, "seed {seed}, step {step}");
                    snapshot.assume(&pod, &one.node);
                    uids.push(name);
                }
            }
        }
    }
}
