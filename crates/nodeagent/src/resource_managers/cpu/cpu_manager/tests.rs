use super::*;
use crate::objects::testing::object;
use crate::resource_managers::policy_state::State;
use crate::resource_managers::topology::{Core, NumaNode};
use crate::runtime::simulated::SimulatedRuntime;
use api::core::v1::PodStatus;
use env::Simulated;
use std::sync::Arc;

fn machine() -> MachineTopology {
    let core = |cpu: u32| Core { socket: 0, threads: CpuSet::from([cpu]) };
    MachineTopology { nodes: vec![NumaNode { cores: (0..4).map(core).collect(), ..NumaNode::default() }] }
}

fn start(policy: &str, reserved: &str, directory: &Path) -> Result<CpuManager, String> {
    let reservation = match reserved {
        "" => ResourceList::new(),
        amount => ResourceList::from([(CPU.to_owned(), amount.parse().unwrap())]),
    };
    CpuManager::new(CpuManagerOptions {
        policy,
        options: CpuPolicyOptions::default(),
        machine: &machine(),
        reserved_cpus: CpuSet::new(),
        reservation: &reservation,
        topology_policy: TopologyPolicy::None,
        directory,
        metrics: AgentMetrics::default(),
    })
}

fn pod(uid: &str, cpu: &str) -> Arc<Pod> {
    Arc::new(object(&format!(
        r#"{{"metadata":{{"uid":"{uid}"}},"spec":{{"containers":[{{"name":"c","resources":{{
            "requests":{{"cpu":"{cpu}","memory":"1Gi"}},"limits":{{"cpu":"{cpu}","memory":"1Gi"}}}}}}]}}}}"#
    )))
}

fn allocate(manager: &CpuManager, pod: &Pod) -> Result<(), AllocationError> {
    manager.allocate(pod, &pod.spec.containers[0], TopologyHint::default())
}

/// Pods whose only container runs.
struct RunningPods(Vec<Arc<Pod>>);

impl PodSource for RunningPods {
    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.0.clone()
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.0.clone()
    }

    fn status(&self, uid: &str) -> Option<PodStatus> {
        let state = if uid == "ended" { r#"{"terminated":{}}"# } else { r#"{"running":{}}"# };
        Some(object(&format!(
            r#"{{"containerStatuses":[{{"name":"c","containerID":"containerd://id-{uid}","state":{state}}}]}}"#
        )))
    }
}

#[test]
fn the_static_policy_needs_a_reservation() {
    let dir = tempfile::tempdir().unwrap();
    let error = |reserved: &str| start("static", reserved, dir.path()).err().unwrap_or_default();
    assert_eq!(error(""), "[cpumanager] unable to determine reserved CPU resources for static policy");
    assert_eq!(
        error("0"),
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
    );
    assert!(error("9").starts_with("new static policy error: [cpumanager] unable to reserve"));
    assert_eq!(error("500m"), "");
}

#[test]
fn assignments_survive_restarts_and_bind_the_policy() {
    let dir = tempfile::tempdir().unwrap();
    let manager = start("static", "500m", dir.path()).unwrap();
    let (exclusive, shared) = (pod("a", "2"), pod("b", "1500m"));
    assert!(manager.is_needed(&exclusive) && !manager.is_needed(&shared));
    allocate(&manager, &exclusive).unwrap();
    allocate(&manager, &shared).unwrap();
    let restarted = start("static", "500m", dir.path()).unwrap();
    assert_eq!(cpuset::format(&restarted.affinity("a", "c")), "1-2");
    assert_eq!(cpuset::format(&restarted.affinity("b", "c")), "0,3");
    assert_eq!(cpuset::format(&restarted.allocatable()), "1-3");
    let why = start("none", "", dir.path()).err().unwrap();
    assert!(
        why.starts_with("start cpu manager error: could not restore state from checkpoint: configured policy \"none\" differs"),
        "{why}"
    );
    restarted.retain(&ActiveContainers::default());
    assert_eq!(cpuset::format(&restarted.affinity("a", "c")), "0-3");
    let text = std::fs::read_to_string(dir.path().join(CpuState::FILE)).unwrap();
    assert_eq!(text, r#"{"policyName":"static","defaultCpuSet":"0-3","checksum":611748604}"#);
}

#[test]
fn without_a_policy_containers_run_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let manager = start("none", "", dir.path()).unwrap();
    let pod = pod("a", "2");
    allocate(&manager, &pod).unwrap();
    assert!(!manager.is_needed(&pod) && manager.affinity("a", "c").is_empty());
    assert!(manager.hints(&pod, None).is_empty() && !manager.is_reconciling());
}

#[tokio::test]
async fn running_containers_follow_the_shared_cpus() {
    let dir = tempfile::tempdir().unwrap();
    let manager = start("static", "1", dir.path()).unwrap();
    let simulated = SimulatedRuntime::new(Simulated::new(1_000_000_000, 1));
    let runtime: SharedRuntime = Arc::new(simulated.clone());
    let (own, shared) = (pod("own", "2"), pod("shared", "500m"));
    let pods = RunningPods(vec![own.clone(), shared, pod("ended", "500m")]);
    manager.reconcile(&pods, &runtime).await;
    assert_eq!(simulated.take_log(), ["update id-own cpus=0-3", "update id-shared cpus=0-3"]);
    allocate(&manager, &own).unwrap();
    // the container was made on its CPUs
    manager.container_started("own", "c");
    manager.reconcile(&pods, &runtime).await;
    assert_eq!(simulated.take_log(), ["update id-shared cpus=0,3"]);
    manager.reconcile(&pods, &runtime).await;
    assert_eq!(simulated.take_log(), [""; 0]);
    let left: ActiveContainers = pods.0[1..].iter().collect();
    manager.retain(&left);
    manager.reconcile(&RunningPods(pods.0[1..].to_vec()), &runtime).await;
    assert_eq!(simulated.take_log(), ["update id-shared cpus=0-3"]);
}
