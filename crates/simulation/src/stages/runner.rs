//! Chooses stages for the objects of a kind, waits for their delays, and writes what they say.
//!
//! An object has one stage at a time. While a stage waits, another version of the object changes nothing unless the
//! stage no longer matches; while it is written, the object is left alone.

use super::functions::text;
use super::stage::{Stage, StageKind};
use crate::events::NodeEvents;
use api::core::v1::{Node, Pod};
use api::meta::v1::DeleteOptions;
use api::{Json, Resource, Time};
use client::{Api, Client, Error, EventType, Informer, Key, Patch, json_value};
use env::World;
use names::simulation::VERSION_SUFFIX;
use nodeagent::node::NodeOptions;
use parking_lot::Mutex;
use schema::yaml::{self, Limits};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// The time before a stage is repeated that could not be written.
const RETRY: Duration = Duration::from_secs(5);

/// What templates can learn besides the object.
#[derive(Debug, Clone, Default)]
pub struct StageFacts {
    pub node_name: String,
    pub node_ip: String,
    pub pod_ip: String,
}

/// Where an object is.
enum Progress {
    /// The stage of this index waits.
    Waiting(usize, AbortHandle),
    Writing,
    /// Written at this resource version; `is_same` if the object did not change by it.
    Written {
        version: u64,
        is_same: bool,
    },
}

/// See the module.
pub struct StageRunner<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    stages: Vec<Stage>,
    client: Client,
    objects: Informer<K>,
    events: NodeEvents,
    world: World,
    started: Time,
    progress: Mutex<HashMap<String, Progress>>,
}

/// Objects that stages change.
pub trait StagedObject: Resource + Json {
    const KIND: StageKind;
    fn record(&self, events: &NodeEvents, event_type: EventType, reason: &str, message: &str);
}

impl StagedObject for Pod {
    const KIND: StageKind = StageKind::Pod;
    fn record(&self, events: &NodeEvents, event_type: EventType, reason: &str, message: &str) {
        nodeagent::pod::events::PodEvents::record(events, self, None, event_type, reason, message);
    }
}

impl StagedObject for Node {
    const KIND: StageKind = StageKind::Node;
    fn record(&self, events: &NodeEvents, event_type: EventType, reason: &str, message: &str) {
        events.about_node_with(self.name(), event_type, reason, message);
    }
}

impl<K: StagedObject> StageRunner<K> {
    /// The runner of the stages for this kind.
    pub fn new(
        stages: &[Stage],
        client: Client,
        objects: Informer<K>,
        events: NodeEvents,
        world: World,
    ) -> Self {
        let stages = stages.iter().filter(|it| it.kind == K::KIND).cloned().collect();
        let (started, progress) = (Time::from(world.now()), Mutex::default());
        StageRunner { shared: Arc::new(Shared { stages, client, objects, events, world, started, progress }) }
    }

    pub fn is_empty(&self) -> bool {
        self.shared.stages.is_empty()
    }

    /// Takes a version of an object.
    pub fn set(&self, object: &K, facts: StageFacts) {
        self.shared.consider(object, facts);
    }

    /// An object is gone.
    pub fn remove(&self, uid: &str) {
        if let Some(Progress::Waiting(_, task)) = self.shared.progress.lock().remove(uid) {
            task.abort();
        }
    }
}

fn version<K: Resource>(object: &K) -> u64 {
    object.resource_version().parse().unwrap_or(0)
}

impl<K: StagedObject> Shared<K> {
    fn consider(self: &Arc<Self>, object: &K, facts: StageFacts) {
        let mut progress = self.progress.lock();
        let tree = json_value(object);
        match progress.get(object.uid()) {
            Some(Progress::Writing) => return,
            Some(Progress::Written { version: last, is_same }) => {
                let current = version(object);
                if current < *last || (current == *last && *is_same) {
                    return;
                }
            }
            Some(Progress::Waiting(stage, _)) if self.stages[*stage].matches(&tree) => return,
            Some(Progress::Waiting(_, task)) => task.abort(),
            None => {}
        }
        let Some(index) = self.choose(&tree) else {
            progress.remove(object.uid());
            return;
        };
        let share = self.random_share();
        let delay = self.stages[index].delay(&tree, env::unix_seconds(&self.world), share);
        let (shared, wake) = (self.clone(), env::sleep(&self.world, delay));
        let (key, uid) = (Key::of(object), object.uid().to_owned());
        let task = tokio::spawn(async move {
            wake.await;
            shared.play(index, &key, &uid, facts).await;
        });
        progress.insert(object.uid().to_owned(), Progress::Waiting(index, task.abort_handle()));
    }

    fn random_share(&self) -> f64 {
        (env::random_u64(&self.world) % 10_000) as f64 / 10_000.0
    }

    /// One of the stages that match, by their weights; all alike if none has one.
    fn choose(&self, object: &Value) -> Option<usize> {
        let matching: Vec<usize> =
            (0..self.stages.len()).filter(|it| self.stages[*it].matches(object)).collect();
        let total: u64 = matching.iter().map(|it| self.stages[*it].weight).sum();
        let random = env::random_u64(&self.world);
        if total == 0 {
            let count = u64::try_from(matching.len()).ok().filter(|it| *it > 0)?;
            return matching.get(usize::try_from(random % count).ok()?).copied();
        }
        let mut left = random % total;
        matching.into_iter().find(|it| {
            let weight = self.stages[*it].weight;
            let is_it = left < weight;
            left = left.saturating_sub(weight);
            is_it
        })
    }

    /// Writes what a stage says about the newest version of an object.
    async fn play(self: &Arc<Self>, index: usize, key: &Key, uid: &str, facts: StageFacts) {
        self.progress.lock().insert(uid.to_owned(), Progress::Writing);
        let stage = &self.stages[index];
        let object = self.objects.get(key).filter(|it| it.uid() == uid);
        let Some(object) = object.filter(|it| stage.matches(&json_value(&**it))) else {
            self.progress.lock().remove(uid);
            return;
        };
        let before = version(&*object);
        match self.write(stage, &object, &facts).await {
            Ok(version) => {
                let written = Progress::Written { version, is_same: version == before };
                self.progress.lock().insert(uid.to_owned(), written);
            }
            Err(why) => {
                tracing::warn!(stage = stage.name, object = %key, %why, "a stage could not be written");
                env::sleep(&self.world, RETRY).await;
                self.progress.lock().remove(uid);
            }
        }
        // a change during the write has no event any more
        if let Some(current) = self.objects.get(key).filter(|it| it.uid() == uid) {
            self.consider(&current, facts);
        }
    }

    /// Returns the resource version that it ends with.
    async fn write(&self, stage: &Stage, object: &Arc<K>, facts: &StageFacts) -> Result<u64, String> {
        let (next, name) = (&stage.next, object.name());
        if let Some(event) = &next.event {
            let event_type = if event.is_warning { EventType::Warning } else { EventType::Normal };
            object.record(&self.events, event_type, &event.reason, &event.message);
        }
        let failed = |why: Error| why.to_string();
        let api = Api::<K>::beside(&self.client, &**object);
        let mut last = version(&**object);
        if let Some(change) = &next.finalizers {
            let current = &object.metadata().finalizers;
            let finalizers = change.apply(current);
            if finalizers != *current {
                let patch =
                    Patch::merge(json!({"metadata": {"uid": object.uid(), "finalizers": finalizers}}));
                last = version(&api.patch(name, &patch).await.map_err(failed)?);
            }
        }
        if let Some(template) = &next.status {
            let functions = |name: &str, arguments: &[Value]| self.function(name, arguments, facts);
            let rendered = template.render(&json_value(&**object), &functions)?;
            let status = parse_yaml(rendered.as_bytes())?;
            let patch = Patch::strategic(json!({"metadata": {"uid": object.uid()}, "status": status}));
            last = version(&api.patch_status(name, &patch).await.map_err(failed)?);
        }
        if next.is_delete {
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                preconditions: Some(Box::new(client::of_uid(object.uid()))),
                ..DeleteOptions::default()
            };
            match api.delete(name, &options).await {
                Err(why) if why.is_not_found() => {}
                deleted => deleted.map_err(failed)?,
            }
        }
        Ok(last)
    }

    /// Functions of templates about the cluster.
    fn function(&self, name: &str, arguments: &[Value], facts: &StageFacts) -> Option<Result<Value, String>> {
        let options = NodeOptions::default();
        let value = match (name, arguments) {
            ("Now", []) => json!(Time::from(self.world.now()).to_string()),
            ("StartTime", []) => json!(self.started.to_string()),
            ("Version", []) => json!(format!("{}{VERSION_SUFFIX}", options.version)),
            ("NodeName", []) => json!(facts.node_name),
            ("NodePort", []) => json!(options.port),
            ("NodeIP", []) | ("NodeIPWith", [_]) => json!(facts.node_ip),
            ("PodIP", []) => json!(facts.pod_ip),
            // name of the node, whether the network is the node's, uid, name and namespace of the pod
            ("PodIPWith", [_, is_host, ..]) => match is_host == &Value::Bool(true) || text(is_host) == "true"
            {
                true => json!(facts.node_ip),
                false => json!(facts.pod_ip),
            },
            _ => return None,
        };
        Some(Ok(value))
    }
}

/// A document of YAML as a JSON value.
pub fn parse_yaml(text: &[u8]) -> Result<Value, String> {
    let document = yaml::parse(text, Limits::default()).map_err(|why| why.cause().to_owned())?;
    serde_json::from_slice(&schema::encode::untyped(&document.value)).map_err(|why| why.to_string())
}
