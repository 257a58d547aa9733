use super::*;
use crate::framework::Plugin;
use crate::queue::Pending;
use api::core::v1::Pod;
use api::from_json;

struct Fixed;

impl StateSource for Fixed {
    fn state(&self) -> Option<State> {
        Some(State {
            pending: Pending { active: 1, backoff: 2, unschedulable: 3, gated: 4 },
            incoming: vec![(QueueName::Active, "PodAdd", 7)],
            rejected: vec![("default-scheduler".to_owned(), Plugin::NodeResourcesFit, 3)],
            nodes: 5,
            pods: 6,
            assumed_pods: 1,
        })
    }

    fn pods(&self) -> Vec<PodResources> {
        let pod = br#"{"metadata":{"name":"p","namespace":"d"},"spec":{"schedulerName":"s","priority":7,
            "overhead":{"cpu":"100m","memory":"1Ki"},
            "initContainers":[{"name":"i","resources":{"requests":{"cpu":"1"}}}],
            "containers":[{"name":"a","resources":{"requests":{"cpu":"100m","a.b/c":"2"},"limits":{"cpu":"200m"}}},
                          {"name":"b","resources":{"requests":{"cpu":"200m"}}}]}}"#;
        let pod: Pod = from_json(pod).unwrap();
        vec![PodResources {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            node: Arc::from(&*pod.spec.node_name),
            totals: Arc::new(PodTotals::new(&pod)),
        }]
    }
}

#[test]
fn metrics_have_upstreams_names_labels_and_buckets() {
    let registry = Registry::default();
    let metrics = Metrics::new(&registry);
    let source: Arc<dyn StateSource> = Arc::new(Fixed);
    metrics.watch(Arc::downgrade(&source));
    let second = Duration::from_secs(1);
    metrics.observe_attempt(AttemptResult::Scheduled, "p", second);
    metrics.observe_attempt(AttemptResult::Unschedulable, "p", second);
    metrics.observe_scheduled_pod(20, second);
    metrics.observe_algorithm(second);
    metrics.observe_preemption_attempt();
    metrics.observe_victims(3);
    metrics.observe_point("Filter", PluginStatus::Failure(Code::Unschedulable), "p", second);
    metrics.observe_plugin("DefaultBinder", "Bind", PluginStatus::Success, second);
    metrics.observe_volume_error(VolumeStage::Bind);
    let binding = metrics.begin_binding();
    let text = registry.text();
    for part in [
        "scheduler_schedule_attempts_total{profile=\"p\",result=\"scheduled\"} 1\n",
        "scheduler_schedule_attempts_total{profile=\"p\",result=\"unschedulable\"} 1\n",
        "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"p\",result=\"scheduled\",le=\"16.384\"} 1\n",
        "scheduler_scheduling_algorithm_duration_seconds_bucket{le=\"0.001\"} 0\n",
        "scheduler_pod_scheduling_duration_seconds_bucket{attempts=\"15+\",le=\"5242.88\"} 1\n",
        "scheduler_pod_scheduling_attempts_bucket{le=\"16\"} 0\n",
        "scheduler_framework_extension_point_duration_seconds_bucket{extension_point=\"Filter\",profile=\"p\",status=\"Unschedulable\",le=\"0.2048\"} 0\n",
        "scheduler_plugin_execution_duration_seconds_count{extension_point=\"Bind\",plugin=\"DefaultBinder\",status=\"Success\"} 1\n",
        "scheduler_preemption_attempts_total 1\n",
        "scheduler_volume_scheduling_stage_error_total{operation=\"bind\"} 1\n",
        "scheduler_preemption_victims_bucket{le=\"64\"} 1\n",
        "scheduler_pending_pods{queue=\"active\"} 1\n",
        "scheduler_pending_pods{queue=\"gated\"} 4\n",
        "scheduler_queue_incoming_pods_total{event=\"PodAdd\",queue=\"active\"} 7\n",
        "scheduler_unschedulable_pods{plugin=\"NodeResourcesFit\",profile=\"default-scheduler\"} 3\n",
        "scheduler_scheduler_cache_size{type=\"assumed_pods\"} 1\n",
        "scheduler_goroutines{operation=\"binding\"} 1\n",
        "scheduler_scheduler_goroutines{work=\"binding\"} 1\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    drop(binding);
    assert!(registry.text().contains("scheduler_goroutines{operation=\"binding\"} 0\n"));
    // a scheduler that has ended shows nothing
    drop(source);
    assert!(!registry.text().contains("scheduler_pending_pods{"));
    assert_eq!(metrics.pod_resources(), "");
}

#[test]
fn requests_and_limits_of_pods_are_served() {
    let metrics = Metrics::default();
    let source: Arc<dyn StateSource> = Arc::new(Fixed);
    metrics.watch(Arc::downgrade(&source));
    let text = metrics.pod_resources();
    let series = |name: &str, resource: &str, unit: &str, value: &str| {
        let pod = "namespace=\"d\",node=\"\",pod=\"p\",priority=\"7\"";
        format!("{name}{{{pod},resource=\"{resource}\",scheduler=\"s\",unit=\"{unit}\"}} {value}\n")
    };
    for part in [
        series("kube_pod_resource_request", "cpu", "cores", "1.1"),
        series("kube_pod_resource_request", "memory", "bytes", "1024"),
        series("kube_pod_resource_request", "a.b/c", "", "2"),
        series("kube_pod_resource_limit", "cpu", "cores", "0.3"),
    ] {
        assert!(text.contains(&part), "{part} in {text}");
    }
    assert!(!text.contains(
        "kube_pod_resource_limit{namespace=\"d\",node=\"\",pod=\"p\",priority=\"7\",resource=\"memory\""
    ));
}
