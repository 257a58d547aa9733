//! Volumes of drivers come to the nodes whose pods want them, and go when nobody does.
//!
//! An attachment is an object that a driver beside the cluster carries out. Here it is made and removed, and nodes are
//! told what is attached to them; agents use nothing that they were not told of.
//!
//! What always holds: a volume that can be at one node only is not attached to a second one while an attachment to
//! another is there, however far it has gone. A node is told that something is not attached before it is detached. What
//! an agent says that it uses stays, unless the agent is not heard of for long, or its node was said to be out of
//! service. Only nodes whose agents leave this to the cluster are looked after.

mod attacher;
mod csi;
mod decide;
mod indexes;
mod listen;
mod metrics;
mod snapshot;

pub use attacher::Options;

use crate::Context;
use crate::pods::rank;
use crate::volumes::claims;
use attacher::Attacher;
use client::events::EventType;
use client::{Action, Failure, Key, Queue, Reconcile, WriteTracker, run, unless};
use decide::Plan;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use metrics::{AttachMetrics, Operation};
use parking_lot::Mutex;
use serde_json::json;
use snapshot::Snapshot;
use std::sync::Arc;
use std::time::Duration;

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::default();
    let (nodes, attachments) = (context.informer::<Node>(), context.informer::<VolumeAttachment>());
    let this = Arc::new(Attacher {
        metrics: AttachMetrics::new(&context, &attachments),
        options,
        pods: context.informer(),
        claims: context.informer(),
        volumes: context.informer(),
        drivers: context.informer(),
        nodes: WriteTracker::new(nodes.clone()),
        attachments: WriteTracker::new(attachments.clone()),
        since: Mutex::default(),
        told: Mutex::default(),
        context,
    });
    listen::listen(&this, &queue);
    tokio::join!(
        this.pods.synced(),
        this.claims.synced(),
        this.volumes.synced(),
        this.drivers.synced(),
        nodes.synced(),
        attachments.synced()
    );
    // one after the other: where a volume is must be known before it is attached elsewhere
    run::run(this, queue, 1).await;
}

impl Reconcile for Attacher {
    type Key = Key;

    fn name(&self) -> &'static str {
        "attachdetach"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.nodes.seen(key).await?;
        self.attachments.seen(key).await?;
        let node = &key.name;
        let Some(snapshot) = self.snapshot(node) else { return Ok(Action::AwaitChange) };
        for object in snapshot.exclusive() {
            self.attachments.seen(&volume_key(object)).await?;
        }
        // what was waited for changes where volumes are
        let Some(snapshot) = self.snapshot(node) else { return Ok(Action::AwaitChange) };
        self.metrics.wanted(node, &snapshot.seen);
        if snapshot.seen.node.is_none() && !snapshot.seen.there.is_empty() && self.is_there(node).await? {
            return Err(Failure::Other(format!("node {node} has not been seen yet")));
        }
        let plan = snapshot.seen.decide(self.options.patience);
        self.carry_out(key, &snapshot, &plan).await?;
        Ok(self.remember(node, &snapshot, &plan))
    }
}

fn volume_key(object: &str) -> Key {
    Key::new("volume", object)
}

impl Attacher {
    async fn is_there(&self, node: &str) -> Result<bool, Failure> {
        let nodes: Api<Node> = Api::all(self.context.client.clone());
        Ok(unless(404, nodes.get_metadata(node).await)?.is_some())
    }

    async fn carry_out(&self, key: &Key, snapshot: &Snapshot, plan: &Plan) -> Result<(), Failure> {
        if let Some(told) = &plan.tell {
            self.tell(key, told).await?;
        }
        for name in &plan.new {
            let message = format!("AttachVolume.Attach succeeded for volume {:?} ", snapshot.object(name));
            for pod in snapshot.pods(name) {
                self.context.events.tell(&**pod, EventType::Normal, "SuccessfulAttachVolume", &*message);
            }
        }
        for (name, forced) in &plan.detach {
            self.detach(key, name).await?;
            if *forced {
                tracing::warn!(node = key.name, attachment = name, "detached while it may be in use");
                self.metrics.forced();
            }
        }
        for name in &plan.attach {
            self.attach(key, name, snapshot).await?;
        }
        for name in &plan.refused {
            let why = format!(
                "Multi-Attach error for volume {:?} {}",
                snapshot.object(name),
                self.whose(key, snapshot, name)
            );
            self.warn(key, snapshot, name, why);
        }
        for name in &plan.failed {
            let why = snapshot.seen.there.get(name).and_then(|it| it.error.as_deref()).unwrap_or("");
            let why = format!("AttachVolume.Attach failed for volume {:?} : {why}", snapshot.object(name));
            self.warn(key, snapshot, name, why);
        }
        Ok(())
    }

    /// Tells a node what is attached to it.
    async fn tell(&self, key: &Key, attached: &[String]) -> Result<(), Failure> {
        let attached: Vec<_> = attached.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
        let patch = Patch::Merge(json!({"status": {"volumesAttached": attached}}));
        let nodes: Api<Node> = Api::all(self.context.client.clone());
        if let Some(node) = unless(404, nodes.patch_status(&key.name, &PatchParams::default(), &patch).await)?
        {
            self.nodes.wrote(key, &node);
        }
        Ok(())
    }

    async fn attach(&self, key: &Key, name: &str, snapshot: &Snapshot) -> Result<(), Failure> {
        let Some(wanted) = snapshot.seen.wanted.get(name) else { return Ok(()) };
        let source = VolumeAttachmentSource {
            persistent_volume_name: Some(wanted.object.clone()),
            ..VolumeAttachmentSource::default()
        };
        let attachment = VolumeAttachment {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: VolumeAttachmentSpec {
                attacher: wanted.volume.driver.clone(),
                node_name: key.name.clone(),
                source,
            },
            status: None,
        };
        let attachments: Api<VolumeAttachment> = Api::all(self.context.client.clone());
        self.metrics.asked(name, &wanted.volume.driver, Operation::Attach, self.context.world.elapsed());
        // one that is there already is seen soon
        let made = unless(409, attachments.create(&PostParams::default(), &attachment).await);
        if made.is_err() {
            self.metrics.not_asked(name, self.context.world.elapsed());
        }
        if let Some(made) = made? {
            self.attachments.wrote(key, &made);
            self.attachments.wrote(&volume_key(&wanted.object), &made);
        }
        Ok(())
    }

    async fn detach(&self, key: &Key, name: &str) -> Result<(), Failure> {
        let Some(attachment) = self.attachments.informer().get(&Key::new("", name)) else { return Ok(()) };
        let same = Preconditions { uid: attachment.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        let attachments: Api<VolumeAttachment> = Api::all(self.context.client.clone());
        let now = || self.context.world.elapsed();
        self.metrics.asked(name, &attachment.spec.attacher, Operation::Detach, now());
        match unless(404, attachments.delete(name, &params).await) {
            Err(kube::Error::Api(answer)) if answer.code == 409 => {}
            Ok(_) => {}
            Err(why) => {
                self.metrics.not_asked(name, now());
                return Err(why.into());
            }
        }
        self.attachments.deleted(key, &attachment);
        Ok(())
    }

    /// Tells the pods that want a volume why they do not have it, each thing once.
    fn warn(&self, key: &Key, snapshot: &Snapshot, name: &str, why: String) {
        let before = self.told.lock().insert((key.name.clone(), name.to_owned()), why.clone());
        if before.as_ref() != Some(&why) {
            for pod in snapshot.pods(name) {
                self.context.events.tell(&**pod, EventType::Warning, "FailedAttachVolume", &*why);
            }
        }
    }

    /// Who has a volume elsewhere, as far as the pods that want it may know.
    fn whose(&self, key: &Key, snapshot: &Snapshot, name: &str) -> String {
        let Some(mine) = snapshot.pods(name).first() else { return String::new() };
        let object = self.volumes.get(&Key::new("", snapshot.object(name)));
        let claim = object.as_deref().and_then(indexes::claim_of);
        let users = claim.map(|claim| claims::users(&self.pods, &claim)).unwrap_or_default();
        let elsewhere = |pod: &&Arc<Pod>| rank::node(pod).is_some_and(|node| node != key.name);
        let (mut near, mut far) = (Vec::new(), 0);
        for pod in users.iter().filter(elsewhere) {
            match pod.namespace() == mine.namespace() {
                true => near.push(pod.name_any()),
                false => far += 1,
            }
        }
        near.sort();
        match (near.is_empty(), far) {
            (true, 0) => {
                "Volume is already exclusively attached to one node and can't be attached to another"
                    .to_owned()
            }
            (true, far) => format!("Volume is already used by {far} pod(s) in different namespaces"),
            (false, 0) => format!("Volume is already used by pod(s) {}", near.join(", ")),
            (false, far) => format!(
                "Volume is already used by pod(s) {} and {far} pod(s) in different namespaces",
                near.join(", ")
            ),
        }
    }

    /// Keeps what is still to be waited for and what still does not work, and says when to look again.
    fn remember(&self, node: &str, snapshot: &Snapshot, plan: &Plan) -> Action {
        self.told
            .lock()
            .retain(|(on, name), _| on != node || plan.refused.contains(name) || plan.failed.contains(name));
        let now = self.context.world.elapsed();
        let mut since = self.since.lock();
        since.retain(|(on, name), _| on != node || plan.waiting.contains(name));
        for name in &plan.waiting {
            since.entry((node.to_owned(), name.clone())).or_insert(now);
        }
        let left = plan.waiting.iter().map(|name| {
            let waited = snapshot.seen.waited.get(name).copied().unwrap_or_default();
            self.options.patience.saturating_sub(waited).max(Duration::from_secs(1))
        });
        left.min().map_or(Action::AwaitChange, Action::Requeue)
    }
}
