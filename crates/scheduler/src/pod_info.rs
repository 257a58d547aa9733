//! A pod parsed once: its requests, host ports and affinity terms.
//!
//! Every pod of the cluster has one, so it holds only what is read from pods that are assigned already. What only the
//! pod being scheduled needs is prepared by its cycle.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};

use api::Time;
use api::core::v1::{Pod, PodAffinityTerm, Volume, WeightedPodAffinityTerm};
use apimachinery::labels::ParseError;

use crate::interner::Interner;
use crate::resource::{CPU, DEFAULT_MEMORY, DEFAULT_MILLI_CPU, MEMORY, Resource};
use crate::selector::{LabelMatcher, Labels};

/// A pod with its parsed parts.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// The object of a pod that waits; an empty one for a pod on a node, of which only the other fields are kept.
    pub pod: Arc<Pod>,
    name: Box<str>,
    namespace: Arc<str>,
    uid: Arc<str>,
    labels: Arc<Labels>,
    priority: i32,
    is_terminating: bool,
    start_time: StartTime,
    /// The volumes that plugins read.
    pub volumes: Box<[Volume]>,
    /// What the node must have free for it.
    pub requests: Resource,
    /// The CPU and memory that scores count, with defaults for containers without requests.
    pub non_zero_milli_cpu: i64,
    pub non_zero_memory: i64,
    pub host_ports: Box<[HostPort]>,
    /// `None` for a pod without affinity to pods.
    affinity: Option<Arc<AffinityTerms>>,
}

/// When a pod started, in Unix seconds.
#[derive(Debug)]
struct StartTime(AtomicI64);

impl StartTime {
    fn of(started: Option<Time>) -> Self {
        StartTime(AtomicI64::new(StartTime::seconds(started)))
    }

    fn seconds(started: Option<Time>) -> i64 {
        started.map_or(i64::MAX, |time| time.unix_seconds())
    }
}

impl Clone for StartTime {
    fn clone(&self) -> Self {
        StartTime(AtomicI64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// The affinity and anti-affinity of a pod to other pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct AffinityTerms {
    required_affinity: Vec<AffinityTerm>,
    required_anti_affinity: Vec<AffinityTerm>,
    preferred_affinity: Vec<(AffinityTerm, i32)>,
    preferred_anti_affinity: Vec<(AffinityTerm, i32)>,
    /// Why terms could not be parsed.
    error: Option<String>,
}

/// Parts of pods on nodes that pods of one template have in common.
#[derive(Debug, Default)]
pub struct SharedParts {
    labels: Interner<Labels>,
    namespaces: Interner<str>,
    affinity: Interner<AffinityTerms>,
}

/// A port of the node that a container uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub ip: String,
    pub protocol: String,
    pub port: i32,
}

/// All addresses of the node.
pub const ANY_IP: &str = "0.0.0.0";

impl PodInfo {
    pub fn new(pod: Arc<Pod>) -> Self {
        let (requests, non_zero_milli_cpu, non_zero_memory) = requests(&pod);
        PodInfo {
            name: (&*pod.metadata.name).into(),
            namespace: (&*pod.metadata.namespace).into(),
            uid: (&*pod.metadata.uid).into(),
            labels: Arc::new(pod.metadata.labels.clone()),
            priority: pod.spec.priority.unwrap_or(0),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            start_time: StartTime::of(pod.status.start_time),
            volumes: pod.spec.volumes.iter().filter(|volume| is_read(volume)).cloned().collect(),
            requests,
            non_zero_milli_cpu,
            non_zero_memory,
            host_ports: host_ports(&pod),
            affinity: AffinityTerms::new(&pod).map(Arc::new),
            pod,
        }
    }

    /// The parts that are read of a pod on a node.
    pub fn without_object(&self, shared: &mut SharedParts) -> Self {
        static EMPTY: LazyLock<Arc<Pod>> = LazyLock::new(Arc::default);
        PodInfo { pod: Arc::clone(&EMPTY), ..self.with_shared_parts(shared) }
    }

    /// This pod with the parts that it has in common with others.
    pub fn with_shared_parts(&self, shared: &mut SharedParts) -> Self {
        PodInfo {
            labels: shared.labels.intern_arc(&self.labels),
            namespace: shared.namespaces.intern_arc(&self.namespace),
            affinity: self.affinity.as_ref().map(|terms| shared.affinity.intern_arc(terms)),
            ..self.clone()
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    pub fn shared_uid(&self) -> &Arc<str> {
        &self.uid
    }

    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    pub fn priority(&self) -> i32 {
        self.priority
    }

    pub fn is_terminating(&self) -> bool {
        self.is_terminating
    }

    /// When it started, in Unix seconds; a pod that has not started counts as started last.
    pub fn start_time(&self) -> i64 {
        self.start_time.0.load(Ordering::Relaxed)
    }

    /// Takes the start over from the status, in all places that hold the pod. Its node does not change with it: every pod
    /// starts once, and only preemption compares starts.
    pub fn set_start_time(&self, started: Option<Time>) {
        self.start_time.0.store(StartTime::seconds(started), Ordering::Relaxed);
    }

    /// Whether it has affinity or anti-affinity to pods.
    pub fn has_affinity(&self) -> bool {
        self.affinity.is_some()
    }

    pub fn required_affinity(&self) -> &[AffinityTerm] {
        self.affinity.as_ref().map_or(&[], |terms| &terms.required_affinity)
    }

    pub fn required_anti_affinity(&self) -> &[AffinityTerm] {
        self.affinity.as_ref().map_or(&[], |terms| &terms.required_anti_affinity)
    }

    /// Terms with their weights.
    pub fn preferred_affinity(&self) -> &[(AffinityTerm, i32)] {
        self.affinity.as_ref().map_or(&[], |terms| &terms.preferred_affinity)
    }

    /// Terms with their weights.
    pub fn preferred_anti_affinity(&self) -> &[(AffinityTerm, i32)] {
        self.affinity.as_ref().map_or(&[], |terms| &terms.preferred_anti_affinity)
    }

    /// Why affinity terms could not be parsed.
    pub fn affinity_error(&self) -> Option<&str> {
        self.affinity.as_ref()?.error.as_deref()
    }

    /// The topology keys of all its affinity terms.
    pub fn topology_keys(&self) -> impl Iterator<Item = &str> {
        let required = self.required_affinity().iter().chain(self.required_anti_affinity());
        let preferred = self.preferred_affinity().iter().chain(self.preferred_anti_affinity());
        required.chain(preferred.map(|(term, _)| term)).map(|term| &*term.topology_key)
    }

    /// The names of the claims that it mounts, those of ephemeral volumes included.
    pub fn claims(&self) -> impl Iterator<Item = PodClaim<'_>> {
        self.volumes.iter().filter_map(|volume| match &volume.persistent_volume_claim {
            Some(claim) => {
                Some(PodClaim { name: claim.claim_name.clone(), volume: &volume.name, is_ephemeral: false })
            }
            None if volume.ephemeral.is_some() => Some(PodClaim {
                name: format!("{}-{}", self.name, volume.name),
                volume: &volume.name,
                is_ephemeral: true,
            }),
            None => None,
        })
    }
}

impl AffinityTerms {
    /// `None` for a pod without affinity or anti-affinity to pods.
    fn new(pod: &Pod) -> Option<Self> {
        let affinity = pod.spec.affinity.as_ref()?;
        if affinity.pod_affinity.is_none() && affinity.pod_anti_affinity.is_none() {
            return None;
        }
        let (mut terms, mut errors) = (AffinityTerms::default(), Vec::new());
        let mut note = |list: &str, error: ParseError| errors.push(format!("{list}: {error}"));
        if let Some(affinity) = &affinity.pod_affinity {
            let required = parse_terms(pod, &affinity.required_during_scheduling_ignored_during_execution);
            let preferred =
                parse_weighted(pod, &affinity.preferred_during_scheduling_ignored_during_execution);
            terms.required_affinity =
                required.map_err(|error| note("requiredAffinityTerms", error)).unwrap_or_default();
            terms.preferred_affinity =
                preferred.map_err(|error| note("preferredAffinityTerms", error)).unwrap_or_default();
        }
        if let Some(affinity) = &affinity.pod_anti_affinity {
            let required = parse_terms(pod, &affinity.required_during_scheduling_ignored_during_execution);
            let preferred =
                parse_weighted(pod, &affinity.preferred_during_scheduling_ignored_during_execution);
            terms.required_anti_affinity =
                required.map_err(|error| note("requiredAntiAffinityTerms", error)).unwrap_or_default();
            terms.preferred_anti_affinity =
                preferred.map_err(|error| note("preferredAntiAffinityTerms", error)).unwrap_or_default();
        }
        terms.error = match &*errors {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        };
        Some(terms)
    }
}

/// Whether a plugin reads a volume.
fn is_read(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.gce_persistent_disk.is_some()
        || volume.aws_elastic_block_store.is_some()
        || volume.azure_disk.is_some()
        || volume.cinder.is_some()
        || volume.iscsi.is_some()
        || volume.rbd.is_some()
}

/// A claim that a pod mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaim<'a> {
    pub name: String,
    pub volume: &'a str,
    /// The claim belongs to the pod.
    pub is_ephemeral: bool,
}

/// A parsed term of affinity or anti-affinity to pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    pub namespaces: Vec<String>,
    pub namespace_selector: LabelMatcher,
    pub selector: LabelMatcher,
    pub topology_key: Arc<str>,
}

impl AffinityTerm {
    fn new(pod: &Pod, term: &PodAffinityTerm) -> Result<Self, ParseError> {
        let own = term.namespaces.is_empty() && term.namespace_selector.is_none();
        Ok(AffinityTerm {
            namespaces: if own { vec![pod.metadata.namespace.clone()] } else { term.namespaces.clone() },
            namespace_selector: LabelMatcher::new(term.namespace_selector.as_deref())?,
            selector: LabelMatcher::new(term.label_selector.as_deref())?,
            topology_key: Arc::from(&*term.topology_key),
        })
    }

    /// Whether a pod is meant, given the labels of its namespace.
    pub fn matches(&self, pod: &PodInfo, namespace_labels: &Labels) -> bool {
        (self.namespaces.iter().any(|name| name == pod.namespace())
            || self.namespace_selector.matches(namespace_labels))
            && self.selector.matches(pod.labels())
    }
}

fn parse_terms(pod: &Pod, terms: &[PodAffinityTerm]) -> Result<Vec<AffinityTerm>, ParseError> {
    terms.iter().map(|term| AffinityTerm::new(pod, term)).collect()
}

fn parse_weighted(
    pod: &Pod,
    terms: &[WeightedPodAffinityTerm],
) -> Result<Vec<(AffinityTerm, i32)>, ParseError> {
    terms.iter().map(|term| Ok((AffinityTerm::new(pod, &term.pod_affinity_term)?, term.weight))).collect()
}

/// The sum of the containers, or an init container that needs more, plus the overhead; and the same of CPU and memory
/// with defaults.
fn requests(pod: &Pod) -> (Resource, i64, i64) {
    let (mut sum, mut cpu, mut memory) = (Resource::default(), 0i64, 0i64);
    for container in &pod.spec.containers {
        let requests = &container.resources.requests;
        sum.add_list(requests);
        cpu = cpu.saturating_add(requests.get(CPU).map_or(DEFAULT_MILLI_CPU, |it| it.milli()));
        memory = memory.saturating_add(requests.get(MEMORY).map_or(DEFAULT_MEMORY, |it| it.whole()));
    }
    for container in &pod.spec.init_containers {
        let requests = &container.resources.requests;
        sum.raise_to_list(requests);
        cpu = cpu.max(requests.get(CPU).map_or(DEFAULT_MILLI_CPU, |it| it.milli()));
        memory = memory.max(requests.get(MEMORY).map_or(DEFAULT_MEMORY, |it| it.whole()));
    }
    sum.add_list(&pod.spec.overhead);
    cpu = cpu.saturating_add(pod.spec.overhead.get(CPU).map_or(0, |it| it.milli()));
    memory = memory.saturating_add(pod.spec.overhead.get(MEMORY).map_or(0, |it| it.whole()));
    (sum, cpu, memory)
}

fn host_ports(pod: &Pod) -> Box<[HostPort]> {
    let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
    let or = |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
    ports
        .filter(|port| port.host_port > 0)
        .map(|port| HostPort {
            ip: or(&port.host_ip, ANY_IP),
            protocol: or(&port.protocol, "TCP"),
            port: port.host_port,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;

    fn info(json: &str) -> PodInfo {
        PodInfo::new(Arc::new(from_json(json.as_bytes()).unwrap()))
    }

    #[test]
    fn init_containers_raise_and_overhead_adds() {
        let pod = info(
            r#"{"spec":{"overhead":{"cpu":"10m"},
            "containers":[{"name":"a","resources":{"requests":{"cpu":"100m"}}},{"name":"b"}],
            "initContainers":[{"name":"i","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}"#,
        );
        assert_eq!((pod.requests.milli_cpu, pod.requests.memory), (1010, 1 << 30));
        assert_eq!((pod.non_zero_milli_cpu, pod.non_zero_memory), (1010, 1 << 30));
    }

    #[test]
    fn a_term_without_namespaces_means_the_pods_own() {
        let pod = info(
            r#"{"metadata":{"namespace":"a"},"spec":{"affinity":{"podAffinity":{
            "requiredDuringSchedulingIgnoredDuringExecution":[
              {"topologyKey":"k","labelSelector":{}},
              {"topologyKey":"k","labelSelector":{},"namespaceSelector":{"matchLabels":{"t":"x"}}}]}}}}"#,
        );
        let other = info(r#"{"metadata":{"namespace":"b"}}"#);
        let labels = Labels::from([("t".to_owned(), "x".to_owned())]);
        let [own, selected] = pod.required_affinity() else { panic!() };
        assert!(own.matches(&pod, &Labels::new()) && !own.matches(&other, &labels));
        assert!(selected.matches(&other, &labels) && !selected.matches(&other, &Labels::new()));
    }
}
