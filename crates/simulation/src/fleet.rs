//! All simulated nodes of a cluster: creates those of the profile, then follows Node objects and pods.
//!
//! One task takes all changes, in the order of their informers. A silent node takes none; when it comes back, it gets
//! the state of then.

use crate::agent::{AgentContext, NodeAgent};
use crate::events::NodeEvents;
use crate::heartbeats::Heartbeats;
use crate::node::{SimulatedNode, SimulatedNodes, is_simulated};
use crate::node_creation::NodeCreation;
use crate::node_object;
use crate::node_settings::NodeSettings;
use crate::node_writer::NodeWriter;
use crate::pods::PodRange;
use crate::profile::{NodeShape, Profile};
use crate::stages::{StageFacts, StageRunner};
use api::core::v1::{Node, Pod, PodStatus};
use api::{Resource, Time};
use client::{Change, Client, EventType, Informer, InformerFactory, Key, Note, Queue, Recorder};
use env::World;
use nodeagent::admission::sysctls::SysctlAllowlist;
use nodeagent::admission::{Admission, AdmissionNode, Rejection, admit, preemption};
use nodeagent::pod::events::PodEvents;
use nodeagent::pod::spec::is_terminal_phase;
use nodeagent::pod::worker::StatusSink;
use nodeagent::runtime::SandboxConfig;
use nodeagent::runtime::simulated::Simulation;
use nodeagent::stats::AgentMetrics;
use nodeagent::status::writer::StatusWriter;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The index of pods by node.
const BY_NODE: &str = "node";

/// What a fleet is made from.
pub struct FleetOptions {
    pub profile: Profile,
    /// Reads nodes and pods, and writes in the name of all nodes.
    pub client: Client,
    /// The name of the agent in events.
    pub component: String,
    pub metrics: AgentMetrics,
    /// Gets the nodes, for those who look for the agent of one.
    pub nodes: SimulatedNodes,
    pub world: World,
}

/// A change that the fleet takes.
enum FleetEvent {
    Node(Arc<Node>),
    NodeGone(Arc<Node>),
    Pod(Arc<Pod>),
    PodGone(Arc<Pod>),
    /// The worker of a pod has ended, by uid.
    PodEnded(String),
    /// A setting of a node takes effect.
    NodeDue(String),
}

/// Numbers that nodes have.
#[derive(Default)]
struct Numbers(BTreeSet<u32>);

impl Numbers {
    /// A wish if it is free, or the lowest number that is.
    fn take(&mut self, wish: Option<u32>) -> u32 {
        let wish = wish.filter(|it| !self.0.contains(it));
        let number = wish.unwrap_or_else(|| {
            let gap = self.0.iter().zip(0..).find(|(used, number)| *used != number);
            gap.map_or(u32::try_from(self.0.len()).unwrap_or(u32::MAX), |(_, number)| number)
        });
        self.0.insert(number);
        number
    }

    fn release(&mut self, number: u32) {
        self.0.remove(&number);
    }
}

/// See the module.
pub struct Fleet {
    nodes: SimulatedNodes,
    objects: Informer<Node>,
    pods: Informer<Pod>,
    context: AgentContext,
    numbers: Numbers,
    sysctls: SysctlAllowlist,
    /// The agents of pods, by the pod's uid.
    homes: HashMap<String, Arc<NodeAgent>>,
    rejected: HashMap<String, PodStatus>,
    /// Stages in place of the workers and of the node writer, where there are some.
    pod_stages: StageRunner<Pod>,
    node_stages: StageRunner<Node>,
    /// Addresses of the pods that stages change, with the agent that gave them, by uid.
    staged: HashMap<String, (Arc<NodeAgent>, Vec<String>)>,
    /// Takes the names of nodes whose status may differ.
    node_queue: Queue<String>,
    heartbeats: mpsc::UnboundedSender<Arc<SimulatedNode>>,
    events: mpsc::UnboundedSender<FleetEvent>,
    changes: mpsc::UnboundedReceiver<FleetEvent>,
    /// Tasks of the fleet; they end with it.
    tasks: JoinSet<()>,
    factory: InformerFactory,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.factory.close();
        // the agents hold the client, and the API server holds the nodes
        self.nodes.clear();
    }
}

impl Fleet {
    pub fn new(options: FleetOptions) -> Self {
        let FleetOptions { profile, client, component, metrics, nodes, world } = options;
        let factory = InformerFactory::new(client.clone());
        let objects = factory.informer::<Node>();
        let pods = factory.informer_of::<Pod>("", "spec.nodeName!=");
        pods.index(BY_NODE, |pod| vec![pod.spec.node_name.clone()]);
        let recorder = Recorder::new(client.clone(), world.clone(), &component);
        let node_events = NodeEvents::new(recorder, world.clone());
        let statuses = Arc::new(StatusWriter::new(client.clone(), pods.clone(), &world, metrics.clone()));
        let (events, changes) = mpsc::unbounded_channel();
        let (finished, mut ends) = mpsc::unbounded_channel();
        let (heartbeats, new_nodes) = mpsc::unbounded_channel();
        let node_queue = Queue::new(&world);
        let mut tasks = JoinSet::new();
        tasks.spawn(statuses.clone().run());
        tasks.spawn(Heartbeats::new(&client, objects.clone(), &world).run(new_nodes));
        let writer = NodeWriter::new(&client, objects.clone(), nodes.clone(), node_events.clone(), &world);
        tasks.spawn(writer.run(node_queue.clone()));
        let sender = events.clone();
        tasks.spawn(async move {
            while let Some(uid) = ends.recv().await {
                let _ = sender.send(FleetEvent::PodEnded(uid));
            }
        });
        follow(&objects, &events, FleetEvent::Node, FleetEvent::NodeGone);
        follow(&pods, &events, FleetEvent::Pod, FleetEvent::PodGone);
        tasks.spawn(NodeCreation::new(&client, objects.clone(), &world).run(profile.nodes));
        let stages = &profile.stages;
        let pod_stages =
            StageRunner::new(stages, client.clone(), pods.clone(), node_events.clone(), world.clone());
        let node_stages =
            StageRunner::new(stages, client, objects.clone(), node_events.clone(), world.clone());
        Fleet {
            nodes,
            objects,
            pods,
            pod_stages,
            node_stages,
            staged: HashMap::new(),
            context: AgentContext {
                world,
                statuses,
                events: node_events,
                metrics,
                rules: profile.rules.into(),
                finished,
            },
            numbers: Numbers::default(),
            sysctls: SysctlAllowlist::default(),
            homes: HashMap::new(),
            rejected: HashMap::new(),
            node_queue,
            heartbeats,
            events,
            changes,
            tasks,
            factory,
        }
    }

    /// Runs the nodes until it is dropped.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                // its work is done, or it has panicked, which is in the log
                Some(_) = self.tasks.join_next() => {}
                Some(event) = self.changes.recv() => self.take(event).await,
                else => return,
            }
        }
    }

    async fn take(&mut self, event: FleetEvent) {
        match event {
            FleetEvent::Node(node) if is_simulated(&node) => self.set_node(&node).await,
            FleetEvent::Node(node) | FleetEvent::NodeGone(node) => {
                self.node_stages.remove(node.uid());
                self.remove_node(node.name());
            }
            FleetEvent::NodeDue(name) => {
                if let Some(object) = self.objects.get(&Key::new("", &name)).filter(|it| is_simulated(it)) {
                    self.set_node(&object).await;
                }
            }
            FleetEvent::Pod(pod) => self.set_pod(&pod).await,
            FleetEvent::PodGone(pod) => self.remove_pod(&pod),
            FleetEvent::PodEnded(uid) => self.finish_pod(&uid),
        }
    }

    async fn set_node(&mut self, object: &Arc<Node>) {
        let name = object.name();
        let (node, is_new) = match self.nodes.get(name) {
            Some(node) => (node, false),
            None => (self.take_node(object), true),
        };
        self.apply_settings(&node, object);
        match self.node_stages.is_empty() {
            true => self.node_queue.add(name.to_owned()),
            false if node.is_silent() => {}
            false => self.node_stages.set(
                object,
                StageFacts {
                    node_name: name.to_owned(),
                    node_ip: node_object::internal_ip(object, node.number),
                    ..StageFacts::default()
                },
            ),
        }
        let age = self.context.world.elapsed().saturating_sub(node.taken);
        let is_silent = node.settings().is_silent_at(age);
        let is_back = node.set_silent(is_silent) && !is_silent;
        if let Some(agent) = node.agent() {
            if is_silent { agent.gate.close() } else { agent.gate.open() }
        }
        if is_new || is_back {
            self.resync(&node).await;
        }
    }

    fn take_node(&mut self, object: &Node) -> Arc<SimulatedNode> {
        let number = self.numbers.take(node_object::number(object));
        let node = Arc::new(SimulatedNode::new(object.name(), number, self.context.world.elapsed()));
        self.nodes.insert(node.clone());
        let _ = self.heartbeats.send(node.clone());
        node
    }

    /// Takes over the settings of an object; those that changed take effect.
    fn apply_settings(&mut self, node: &Arc<SimulatedNode>, object: &Node) {
        let (settings, errors) = NodeSettings::read(&object.metadata.annotations);
        let before = node.set_settings(settings.clone());
        if settings == before {
            return;
        }
        for at in settings.changes() {
            let wake = env::sleep_until(&self.context.world, node.taken.saturating_add(at));
            let (events, name) = (self.events.clone(), node.name.clone());
            self.tasks.spawn(async move {
                wake.await;
                let _ = events.send(FleetEvent::NodeDue(name));
            });
        }
        for error in errors {
            self.context
                .events
                .on_host(&node.name)
                .about_node(&node.name, Note::warning("InvalidSimulation", error));
        }
        let is_disk_lost = settings.disk_loss != before.disk_loss && !settings.disk_loss.is_empty();
        if let Some(agent) = node.agent().filter(|_| is_disk_lost) {
            tracing::info!(node = node.name, "the disk of a simulated node is lost");
            agent.lose_disk();
        }
    }

    /// Brings the pods of a node to the state of now.
    async fn resync(&mut self, node: &Arc<SimulatedNode>) {
        let pods = self.pods.by(BY_NODE, &node.name);
        let current: HashSet<&str> = pods.iter().map(|it| it.uid()).collect();
        let known = node.agent().map(|it| it.workers.pods()).unwrap_or_default();
        for pod in known.iter().filter(|it| !current.contains(it.uid())) {
            self.end_pod(pod.uid());
        }
        for pod in &pods {
            self.set_pod(pod).await;
        }
    }

    /// The node is gone, and with it all that it would say of its pods.
    fn remove_node(&mut self, name: &str) {
        let Some(node) = self.nodes.remove(name) else { return };
        node.set_gone();
        if let Some(agent) = node.agent() {
            agent.gate.close();
            // its workers end with it
            self.homes.retain(|_, it| !Arc::ptr_eq(it, &agent));
        }
        node.set_agent(None);
        self.numbers.release(node.number);
        self.node_queue.add(name.to_owned());
    }

    async fn set_pod(&mut self, pod: &Arc<Pod>) {
        let Some(node) = self.nodes.get(&pod.spec.node_name).filter(|it| !it.is_silent()) else { return };
        let uid = pod.uid();
        if !self.pod_stages.is_empty() {
            return self.stage_pod(pod, &node).await;
        }
        if let Some(status) = self.rejected.get(uid) {
            return self.context.statuses.set(pod, status, true);
        }
        if let Some(agent) = self.homes.get(uid) {
            return agent.set(pod);
        }
        let Some(agent) = self.agent(&node).await else { return };
        let is_over = is_terminal_phase(&pod.status.phase) || pod.metadata.deletion_timestamp.is_some();
        if !is_over {
            match self.admit(pod, &agent) {
                Ok(admission) => self.make_room(&admission.victims, &agent),
                Err(rejection) => return self.reject(pod, rejection),
            }
        }
        agent.set(pod);
        self.homes.insert(uid.to_owned(), agent);
    }

    /// Hands a pod to the stages.
    async fn stage_pod(&mut self, pod: &Arc<Pod>, node: &Arc<SimulatedNode>) {
        let Some(object) = self.objects.get(&Key::new("", &node.name)) else { return };
        let node_ip = node_object::internal_ip(&object, node.number);
        let pod_ip = match (&*pod.status.pod_ip, pod.spec.host_network) {
            (_, true) => node_ip.clone(),
            ("", false) => self.allocate(pod, node).await,
            (ip, false) => ip.to_owned(),
        };
        self.pod_stages.set(pod, StageFacts { node_name: node.name.clone(), node_ip, pod_ip });
    }

    /// An address for a pod that stages change; empty if there is none left.
    async fn allocate(&mut self, pod: &Pod, node: &Arc<SimulatedNode>) -> String {
        if !self.staged.contains_key(pod.uid()) {
            let Some(agent) = self.agent(node).await else { return String::new() };
            let ips = agent.pods.allocate(&SandboxConfig::default());
            self.staged.insert(pod.uid().to_owned(), (agent, ips));
        }
        let ips = self.staged.get(pod.uid()).map(|it| &it.1);
        ips.and_then(|it| it.first()).cloned().unwrap_or_default()
    }

    /// The agent of a node, which begins with its first pod.
    async fn agent(&self, node: &Arc<SimulatedNode>) -> Option<Arc<NodeAgent>> {
        if let Some(agent) = node.agent() {
            return Some(agent);
        }
        let object = self.objects.get(&Key::new("", &node.name))?;
        let object = node_object::next_status(&object, node.number, &node.settings(), Time::default()).0;
        let range = PodRange::of(&object.spec.pod_cidr, node.number);
        match NodeAgent::new(&self.context, &node.name, node_object::internal_ips(&object), range).await {
            Ok(agent) => {
                let agent = Arc::new(agent);
                node.set_agent(Some(agent.clone()));
                Some(agent)
            }
            Err(why) => {
                tracing::error!(node = node.name, %why, "the agent of a simulated node cannot start");
                None
            }
        }
    }

    /// Ends pods in favour of a critical one, which does not wait for their end: there is room enough in memory.
    fn make_room(&self, victims: &[Arc<Pod>], agent: &NodeAgent) {
        for victim in victims {
            let events = self.context.events.on_host(&victim.spec.node_name);
            let (reason, message) = (preemption::REASON, preemption::MESSAGE);
            PodEvents::record(&events, victim, None, EventType::Warning, reason, message);
            agent.workers.kill(victim.uid(), preemption::kill_request());
        }
    }

    fn admit(&self, pod: &Pod, agent: &NodeAgent) -> Result<Admission, Rejection> {
        let Some(object) = self.objects.get(&Key::new("", &pod.spec.node_name)) else {
            return Ok(Admission::default());
        };
        let mut node = AdmissionNode::from(&*object);
        if node.allocatable.is_empty() {
            // the status is on its way
            node.allocatable = NodeShape::default().capacity;
        }
        admit(pod, &node, &self.sysctls, &agent.workers.active_pods())
    }

    fn reject(&mut self, pod: &Arc<Pod>, Rejection { reason, message }: Rejection) {
        let events = self.context.events.on_host(&pod.spec.node_name);
        PodEvents::record(&events, pod, None, EventType::Warning, &reason, &message);
        let status = PodStatus {
            phase: "Failed".into(),
            message: format!("Pod was rejected: {message}"),
            reason,
            start_time: Some(Time::from(self.context.world.now())),
            ..PodStatus::default()
        };
        self.context.statuses.set(pod, &status, true);
        self.rejected.insert(pod.uid().to_owned(), status);
    }

    /// A pod is gone from the API. A silent node does not know it.
    fn remove_pod(&mut self, pod: &Pod) {
        self.pod_stages.remove(pod.uid());
        if let Some((agent, ips)) = self.staged.remove(pod.uid()) {
            agent.pods.release(&ips);
        }
        let is_silent = self.nodes.get(&pod.spec.node_name).is_some_and(|it| it.is_silent());
        if !is_silent {
            self.end_pod(pod.uid());
        }
    }

    fn end_pod(&mut self, uid: &str) {
        self.rejected.remove(uid);
        if self.homes.get(uid).is_none_or(|it| it.workers.remove(uid)) {
            self.forget_pod(uid);
        }
    }

    /// A worker has ended its pod.
    fn finish_pod(&mut self, uid: &str) {
        if self.homes.get(uid).is_some_and(|it| it.workers.finish(uid)) {
            self.forget_pod(uid);
        }
    }

    fn forget_pod(&mut self, uid: &str) {
        if let Some(agent) = self.homes.remove(uid) {
            agent.forget(uid);
        }
        self.context.statuses.forget(uid);
    }
}

/// Sends the changes of an informer. An object that another one has replaced is gone first.
fn follow<K: Resource>(
    informer: &Informer<K>,
    events: &mpsc::UnboundedSender<FleetEvent>,
    set: fn(Arc<K>) -> FleetEvent,
    gone: fn(Arc<K>) -> FleetEvent,
) {
    let events = events.clone();
    informer.listen(move |change| {
        let event = match change {
            Change::Updated { old, new } => {
                if old.uid() != new.uid() {
                    let _ = events.send(gone((*old).clone()));
                }
                set((*new).clone())
            }
            Change::Added(object) => set((*object).clone()),
            Change::Deleted(object) => gone((*object).clone()),
        };
        let _ = events.send(event);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_lowest_that_are_free() {
        let mut numbers = Numbers::default();
        assert_eq!([numbers.take(None), numbers.take(Some(1)), numbers.take(Some(1))], [0, 1, 2]);
        numbers.release(1);
        assert_eq!([numbers.take(None), numbers.take(Some(9)), numbers.take(None)], [1, 9, 3]);
    }
}
