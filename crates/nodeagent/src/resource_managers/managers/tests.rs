use super::*;
use crate::resource_managers::AdmissionQueue;
use crate::resource_managers::devices::testing::PluginBehaviour;
use crate::resource_managers::testing::{Pods, pod, start};

#[tokio::test]
async fn all_resources_of_a_container_come_from_one_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = start(dir.path(), TopologyPolicy::SingleNumaNode, false);
    let _plugin = fixture.plugin("a@1 b@1 c@0").await;
    let managers = fixture.managers.clone();
    managers.allocate(&pod("p", &[(2, 2, 2), (1, 1, 0)])).await.unwrap();
    assert_eq!(fixture.shown("p", "c0"), "4-5 {1} a,b");
    assert_eq!(fixture.shown("p", "c1"), "1 {0} ");
    // the device of node 0 is free, but not as many CPUs as are needed there
    let refused = managers.allocate(&pod("q", &[(3, 1, 1)])).await.unwrap_err();
    assert_eq!(
        (refused.reason(), &*refused.to_string()),
        ("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
    );
    assert_eq!(fixture.shown("q", "c0"), " {} ");
    let it = pod("p", &[(2, 2, 2)]);
    let resources = managers.container_resources(&it, &it.spec.containers[0]).await.unwrap();
    assert_eq!((&*resources.cpus, &*resources.memory_nodes), ("4-5", "1"));
    assert_eq!(resources.devices.devices.len(), 2);
    // others share what is left
    let other = managers.container_resources(&pod("z", &[]), &Default::default()).await.unwrap();
    assert_eq!((&*other.cpus, &*other.memory_nodes), ("0,2-3,6-7", ""));
}

#[tokio::test]
async fn all_containers_of_a_pod_may_share_their_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = start(dir.path(), TopologyPolicy::Restricted, true);
    let _plugin = fixture.plugin("a@1").await;
    fixture.managers.allocate(&pod("p", &[(1, 1, 0), (1, 1, 1), (2, 1, 0)])).await.unwrap();
    assert_eq!(fixture.shown("p", "c0"), "4 {1} ");
    assert_eq!(fixture.shown("p", "c1"), "5 {1} a");
    assert_eq!(fixture.shown("p", "c2"), "6-7 {1} ");
    // five CPUs need both nodes; one node could not have them
    let wide = fixture.managers.allocate(&pod("q", &[(5, 1, 0)])).await;
    assert_eq!(wide.unwrap_err().reason(), "TopologyAffinityError");
}

#[tokio::test]
async fn best_effort_admits_what_does_not_align() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = start(dir.path(), TopologyPolicy::BestEffort, false);
    let _plugin = fixture.plugin("a@1").await;
    fixture.managers.allocate(&pod("p", &[(4, 1, 0)])).await.unwrap();
    assert_eq!(fixture.shown("p", "c0"), "4-7 {1} ");
    fixture.managers.allocate(&pod("q", &[(2, 1, 1)])).await.unwrap();
    assert_eq!(fixture.shown("q", "c0"), "1-2 {0} a");
}

#[tokio::test]
async fn resources_of_pods_that_are_gone_are_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = start(dir.path(), TopologyPolicy::None, false);
    let (managers, pods) = (&fixture.managers, Arc::new(Pods::default()));
    managers.set_source(pods.clone());
    let (first, second) = (pod("p", &[(2, 1, 0)]), pod("q", &[(2, 1, 0)]));
    managers.allocate(&first).await.unwrap();
    // until all sources were read, nothing is gone
    managers.allocate(&second).await.unwrap();
    assert_eq!(fixture.shown("p", "c0"), "1-2 {0} ");
    pods.0.lock().push(second.clone());
    managers.hold(&first);
    managers.set_synced();
    managers.release_stale();
    assert_eq!(fixture.shown("p", "c0"), "1-2 {0} ");
    managers.settle("p");
    managers.release_stale();
    assert_eq!((&*fixture.shown("p", "c0"), &*fixture.shown("q", "c0")), (" {} ", "3-4 {0} "));
    // a pod that ran before the agent's start gets what the files do not have
    managers.restore(&first);
    assert_eq!(fixture.shown("p", "c0"), "1-2 {0} ");
}

#[tokio::test]
async fn state_survives_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let first = pod("p", &[(2, 1, 1)]);
    let shown = {
        let mut fixture = start(dir.path(), TopologyPolicy::SingleNumaNode, false);
        let _plugin = fixture.plugin("a@1").await;
        fixture.managers.allocate(&first).await.unwrap();
        fixture.shown("p", "c0")
    };
    let fixture = start(dir.path(), TopologyPolicy::SingleNumaNode, false);
    assert_eq!(fixture.shown("p", "c0"), shown);
    // the plugin is not there yet; the pod has what it needs
    fixture.managers.allocate(&first).await.unwrap();
    assert_eq!(fixture.shown("p", "c0"), shown);
}

#[tokio::test]
async fn pods_that_wait_for_a_plugin_are_served_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = start(dir.path(), TopologyPolicy::None, false);
    let plugin = fixture.plugin("a b").await;
    let (queue, mut outcomes) = AdmissionQueue::new(fixture.managers.clone());
    *plugin.state.behaviour.lock() = PluginBehaviour::Hanging;
    for pod in [pod("p", &[(1, 1, 1)]), pod("gone", &[(1, 1, 1)]), pod("q", &[(1, 1, 0)])] {
        if pod.metadata.uid != "gone" {
            fixture.managers.hold(&pod);
        }
        queue.push(pod);
    }
    // CPUs, memory and lists of other pods do not wait for the plugin
    while plugin.state.calls.lock().allocated.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(fixture.managers.is_needed(&pod("r", &[(1, 1, 0)])));
    fixture.managers.release_stale();
    // the plugin dies, and its call with it
    drop(plugin);
    let (uid, outcome) = outcomes.recv().await.unwrap();
    let why = outcome.unwrap_err();
    assert_eq!((&*uid, why.reason()), ("p", "UnexpectedAdmissionError"));
    assert!(why.to_string().starts_with("Allocate failed due to rpc error: code = Unavailable"), "{why}");
    assert_eq!(outcomes.recv().await.unwrap(), ("gone".to_owned(), Ok(())));
    assert_eq!(outcomes.recv().await.unwrap(), ("q".to_owned(), Ok(())));
    assert_eq!(fixture.shown("gone", "c0"), " {} ");
}
