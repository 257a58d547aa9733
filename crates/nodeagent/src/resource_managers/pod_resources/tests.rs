use super::*;
use crate::resource_managers::testing::{ManagersFixture, Pods, pod, start};
use crate::resource_managers::topology::TopologyPolicy;
use crate::stats::AgentMetrics;
use env::Simulated;
use grpc::pod_resources_v1::pod_resources_lister_client::PodResourcesListerClient;
use grpc::pod_resources_v1alpha1::pod_resources_lister_client as v1alpha1_client;
use grpc::tonic::Code;
use grpc::{pod_resources_v1 as v1, pod_resources_v1alpha1 as v1alpha1};
use outbound::{Channel, Dialer, Endpoint};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn serve_at(root_dir: &Path, fixture: &ManagersFixture, has_allocatable: bool) -> (Channel, Arc<Simulated>) {
    let clock = Simulated::new(1_000_000_000, 1);
    let options = PodResourcesOptions {
        managers: fixture.managers.clone(),
        world: clock.clone(),
        metrics: AgentMetrics::default(),
        has_allocatable,
    };
    tokio::spawn(serve(bind(root_dir).unwrap(), options));
    let socket = Endpoint::Unix(root_dir.join("pod-resources/kubelet.sock"));
    (Channel::plain(&socket, Dialer::default()).unwrap(), clock)
}

#[tokio::test]
async fn lists_show_what_pods_have_and_may_have() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = start(dir.path(), TopologyPolicy::SingleNumaNode, false);
    let _plugin = fixture.plugin("a@1 b").await;
    let pods = Arc::new(Pods::default());
    fixture.managers.set_source(pods.clone());
    let it = pod("p", &[(2, 1, 1), (1, 1, 0)]);
    pods.0.lock().push(it.clone());
    fixture.managers.allocate(&it).await.unwrap();
    let (channel, _) = serve_at(dir.path(), &fixture, true);
    let mut client = PodResourcesListerClient::new(channel.clone());
    let listed = client.list(v1::ListPodResourcesRequest {}).await.unwrap().into_inner().pod_resources;
    let [listed] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&*listed.name, listed.containers.len()), ("p", 2));
    let first = &listed.containers[0];
    assert_eq!(first.cpu_ids, [4, 5]);
    let node = |id| Some(v1::TopologyInfo { nodes: vec![v1::NumaNode { id }] });
    let devices = |list: &[v1::ContainerDevices]| -> Vec<_> {
        list.iter().map(|it| (it.device_ids.join(","), it.topology.clone())).collect()
    };
    assert_eq!(devices(&first.devices), [("a".to_owned(), node(1))]);
    let memory = v1::ContainerMemory { memory_type: "memory".to_owned(), size: 1 << 30, topology: node(1) };
    assert_eq!(first.memory, [memory]);
    let all =
        client.get_allocatable_resources(v1::AllocatableResourcesRequest {}).await.unwrap().into_inner();
    assert_eq!(all.cpu_ids, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(devices(&all.devices), [("a".to_owned(), node(1)), ("b".to_owned(), None)]);
    let sizes: Vec<u64> = all.memory.iter().map(|it| it.size).collect();
    assert_eq!(sizes, [7 << 30, 7 << 30]);
    let mut client = v1alpha1_client::PodResourcesListerClient::new(channel);
    let listed = client.list(v1alpha1::ListPodResourcesRequest {}).await.unwrap().into_inner().pod_resources;
    let names: Vec<&str> =
        listed[0].containers[0].devices.iter().map(|it| it.resource_name.as_str()).collect();
    assert_eq!(names, ["example.com/gpu"]);
}

#[tokio::test]
async fn calls_are_limited_and_may_be_disabled() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = start(dir.path(), TopologyPolicy::None, false);
    let (channel, clock) = serve_at(dir.path(), &fixture, false);
    let mut client = PodResourcesListerClient::new(channel);
    for _ in 0..10 {
        client.list(v1::ListPodResourcesRequest {}).await.unwrap();
    }
    let refused = client.list(v1::ListPodResourcesRequest {}).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "rejected by rate limit"));
    clock.advance(Duration::from_millis(10));
    let closed = client.get_allocatable_resources(v1::AllocatableResourcesRequest {}).await.unwrap_err();
    assert_eq!(closed.message(), "Pod Resources API GetAllocatableResources disabled");
}
