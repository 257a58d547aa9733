//! The part of a node that runs pods: workers of the node agent beside a simulated runtime.

use crate::actions::SimulatedActions;
use crate::behaviour::{Rule, of_container};
use crate::events::NodeEvents;
use crate::pods::{PodRange, SimulatedPods};
use crate::setup::SimulatedSetup;
use crate::status_gate::StatusGate;
use api::core::v1::{Pod, Probe};
use env::World;
use nodeagent::images::{Images, PullLimits};
use nodeagent::pod::worker::WorkerContext;
use nodeagent::pod::workers::PodWorkers;
use nodeagent::probes::worker::Prober;
use nodeagent::runtime::simulated::SimulatedRuntime;
use nodeagent::runtime::{Runtime, RuntimeError, SharedRuntime};
use nodeagent::stats::AgentMetrics;
use nodeagent::status::writer::StatusWriter;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// What the agents of a fleet share.
pub struct AgentContext {
    pub world: World,
    pub statuses: Arc<StatusWriter>,
    pub events: NodeEvents,
    pub metrics: AgentMetrics,
    pub rules: Arc<[Rule]>,
    /// Takes the uids of pods that have ended.
    pub finished: mpsc::UnboundedSender<String>,
}

/// See the module.
pub struct NodeAgent {
    pub workers: Arc<PodWorkers>,
    pub runtime: SimulatedRuntime,
    pub gate: Arc<StatusGate>,
    pub pods: Arc<SimulatedPods>,
    statuses: Arc<StatusWriter>,
    rules: Arc<[Rule]>,
}

impl NodeAgent {
    /// The agent of a node with addresses of its own and a range of addresses for its pods.
    pub async fn new(
        context: &AgentContext,
        name: &str,
        host_ips: Vec<String>,
        range: PodRange,
    ) -> Result<Self, RuntimeError> {
        let world = &context.world;
        let pods = Arc::new(SimulatedPods::new(name, range, context.rules.clone()));
        let runtime = SimulatedRuntime::of_node(world.clone(), pods.clone());
        let shared: SharedRuntime = Arc::new(runtime.clone());
        let events = Arc::new(context.events.on_host(name));
        let gate = Arc::new(StatusGate::new(context.statuses.clone()));
        let worker_context = WorkerContext {
            runtime: shared.clone(),
            runtime_name: runtime.version().await?.name,
            world: world.clone(),
            setup: Arc::new(SimulatedSetup(pods.clone())),
            events: events.clone(),
            images: Images::new(shared.clone(), world.clone(), PullLimits::default(), None),
            statuses: gate.clone(),
            prober: Prober {
                runtime: shared,
                actions: Arc::new(SimulatedActions { runtime: runtime.clone(), pods: pods.clone() }),
                world: world.clone(),
                events,
                metrics: context.metrics.clone(),
            },
            metrics: context.metrics.clone(),
            dead_containers: Default::default(),
            finished: context.finished.clone(),
            host_ips: watch::channel(host_ips).1,
        };
        let workers = Arc::new(PodWorkers::new(Arc::new(worker_context)).await?);
        pods.set_workers(&workers);
        let statuses = context.statuses.clone();
        Ok(NodeAgent { workers, runtime, gate, pods, statuses, rules: context.rules.clone() })
    }

    /// Starts a pod, or updates it to another version.
    pub fn set(&self, pod: &Arc<Pod>) {
        self.workers.set(with_readiness(pod, &self.rules));
    }

    /// The pods of the node, with their newest statuses.
    pub fn current_pods(&self) -> Vec<Arc<Pod>> {
        let current = |pod: Arc<Pod>| match self.statuses.status(&pod.metadata.uid) {
            Some(status) => Arc::new(Pod { status, ..Pod::clone(&pod) }),
            None => pod,
        };
        self.workers.pods().into_iter().map(current).collect()
    }

    /// Removes all that is left of a pod.
    pub fn forget(&self, uid: &str) {
        self.runtime.remove_pod(uid);
    }

    /// Containers and images are gone; the workers start all pods anew.
    pub fn lose_disk(&self) {
        self.runtime.remove_all();
        self.pods.remove_images();
        for pod in self.workers.pods() {
            self.workers.relist(&pod.metadata.uid);
        }
    }
}

/// A pod whose containers have a readiness probe where a setting is about readiness.
fn with_readiness(pod: &Arc<Pod>, rules: &[Rule]) -> Arc<Pod> {
    let has_setting = |name: &str| of_container(pod, name, rules).is_ok_and(|it| it.has_readiness);
    let lacks_probe = |at: &usize| {
        let container = &pod.spec.containers[*at];
        container.readiness_probe.is_none() && has_setting(&container.name)
    };
    let lacking: Vec<usize> = (0..pod.spec.containers.len()).filter(lacks_probe).collect();
    if lacking.is_empty() {
        return pod.clone();
    }
    let mut probed = Pod::clone(pod);
    for at in lacking {
        let probe =
            Probe { period_seconds: 1, success_threshold: 1, failure_threshold: 1, ..Probe::default() };
        probed.spec.containers[at].readiness_probe = Some(Box::new(probe));
    }
    Arc::new(probed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_readiness_brings_a_probe_where_there_is_none() {
        let pod = |annotation: &str| -> Arc<Pod> {
            let text = format!(
                r#"{{"metadata":{{"annotations":{{"simulation.pintle.io/{annotation}":"1s"}}}},
                     "spec":{{"containers":[{{"name":"a"}},{{"name":"b","readinessProbe":{{"periodSeconds":7}}}}]}}}}"#
            );
            Arc::new(api::from_json(text.as_bytes()).unwrap())
        };
        let periods = |annotation: &str| -> Vec<Option<i32>> {
            let pod = with_readiness(&pod(annotation), &[]);
            pod.spec
                .containers
                .iter()
                .map(|it| it.readiness_probe.as_ref().map(|it| it.period_seconds))
                .collect()
        };
        assert_eq!(periods("ready-after"), [Some(1), Some(7)]);
        assert_eq!(periods("unready-after.b"), [None, Some(7)]);
        assert_eq!(periods("start-delay"), [None, Some(7)]);
    }
}
