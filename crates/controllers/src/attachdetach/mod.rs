//! Attaches the volumes of CSI and FlexVolume drivers to the nodes whose pods use them, and detaches them afterwards.
//!
//! A VolumeAttachment is an object that an external driver carries out. The controller creates and deletes attachments,
//! and writes `status.volumesAttached` of nodes; a kubelet mounts no volume that is not listed there.
//!
//! FlexVolume drivers are programs on this machine (`flex`), and have no such objects.
//!
//! A volume that can be on one node only is not attached to a second node while an attachment to another exists, in
//! whatever state. A volume is removed from the node's status before it is detached. A volume that a node reports in
//! use stays attached, unless the node is not ready for a long time, or has the out-of-service taint. Only nodes with
//! the annotation `controller-managed-attach-detach` are managed.

mod attachable_volume;
mod attacher;
mod csi;
mod decide;
mod flex;
#[cfg(test)]
mod flex_tests;
mod indexes;
mod listen;
mod metrics;
mod migration;
mod snapshot;

pub use attacher::Options;

use crate::Context;
use crate::volumes::claims;
use api::Resource;
use api::core::v1::Node;
use api::meta::v1::{DeleteOptions, ObjectMeta};
use api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use attachable_volume::AttachableVolume;
use attacher::Attacher;
use client::flex_volume::split_unique_name;
use client::{
    Action, Api, EventType, Failure, Key, Patch, Queue, Reconcile, WriteTracker, of_uid, run, unless,
};
use decide::Plan;
use flex::FlexAttachments;
use metrics::{AttachMetrics, Operation};
use parking_lot::Mutex;
use serde_json::json;
use snapshot::Snapshot;
use std::sync::Arc;
use std::time::Duration;

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::new(&context.world);
    let (nodes, attachments) = (context.informer::<Node>(), context.informer::<VolumeAttachment>());
    let directory = options.flex_directory.as_deref();
    let flex = FlexAttachments::new(directory, queue.clone(), context.world.clone());
    let verify_period = options.verify_period;
    let attacher = Arc::new(Attacher {
        metrics: AttachMetrics::new(&context, &attachments, &flex),
        flex: flex.clone(),
        options,
        pods: context.informer(),
        claims: context.informer(),
        volumes: context.informer(),
        drivers: context.informer(),
        csi_nodes: context.informer(),
        nodes: WriteTracker::new(nodes.clone()),
        attachments: WriteTracker::new(attachments.clone()),
        waiting_since: Mutex::default(),
        warnings: Mutex::default(),
        context,
    });
    listen::listen(&attacher, &queue);
    tokio::join!(
        attacher.pods.synced(),
        attacher.claims.synced(),
        attacher.volumes.synced(),
        attacher.drivers.synced(),
        attacher.csi_nodes.synced(),
        nodes.synced(),
        attachments.synced()
    );
    // before a volume is attached to a second node
    nodes.all().iter().for_each(|it| flex.adopt(it));
    // one worker: the node of a volume must be known before it is attached to another
    let reconcile = run::run(attacher, queue, 1);
    match verify_period {
        None => reconcile.await,
        Some(period) => tokio::select! {
            biased;
            () = reconcile => {}
            () = flex.verify(period) => {}
        },
    }
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
        // the awaited writes change where volumes are
        let Some(snapshot) = self.snapshot(node) else { return Ok(Action::AwaitChange) };
        let volumes = &snapshot.volumes;
        self.metrics.set_desired(node, volumes);
        if volumes.node.is_none() && !volumes.attachments.is_empty() && self.node_exists(node).await? {
            return Err(Failure::Other(format!("node {node} exists, but is not in the cache yet")));
        }
        let plan = volumes.decide(self.options.force_detach_after);
        self.carry_out(key, &snapshot, &plan).await?;
        Ok(self.remember(node, &snapshot, &plan))
    }
}

fn volume_key(object: &str) -> Key {
    Key::new("volume", object)
}

impl Attacher {
    async fn node_exists(&self, node: &str) -> Result<bool, Failure> {
        let nodes = Api::<Node>::all(&self.context.client).metadata_only();
        Ok(nodes.get_opt(node).await?.is_some())
    }

    async fn carry_out(&self, key: &Key, snapshot: &Snapshot, plan: &Plan) -> Result<(), Failure> {
        if let Some(volumes) = &plan.volumes_attached {
            self.write_volumes_attached(key, volumes).await?;
        }
        for name in &plan.new {
            let message = format!("AttachVolume.Attach succeeded for volume {:?} ", snapshot.object(name));
            for pod in snapshot.pods(name) {
                self.context.events.record(&**pod, EventType::Normal, "SuccessfulAttachVolume", &*message);
            }
        }
        for (name, is_forced) in &plan.detach {
            self.detach(key, name).await?;
            if *is_forced {
                tracing::warn!(node = key.name, attachment = name, "detached while it may be in use");
                self.metrics.count_forced();
            }
        }
        for name in &plan.attach {
            self.attach(key, name, snapshot).await?;
        }
        for name in &plan.refused {
            let why = format!(
                "Multi-Attach error for volume {:?} {}",
                snapshot.object(name),
                self.users_elsewhere(key, snapshot, name)
            );
            self.warn(key, snapshot, name, why);
        }
        for name in &plan.failed {
            let state = snapshot.volumes.attachments.get(name);
            let why = state.and_then(|it| it.error.as_deref()).unwrap_or("");
            let why = format!("AttachVolume.Attach failed for volume {:?} : {why}", snapshot.object(name));
            self.warn(key, snapshot, name, why);
        }
        Ok(())
    }

    /// Writes `status.volumesAttached` of a node.
    async fn write_volumes_attached(&self, key: &Key, volumes: &[String]) -> Result<(), Failure> {
        let device = |name: &str| self.flex.device(&key.name, name);
        let volumes: Vec<_> =
            volumes.iter().map(|name| json!({"name": name, "devicePath": device(name)})).collect();
        let patch = Patch::merge(json!({"status": {"volumesAttached": volumes}}));
        let nodes: Api<Node> = Api::all(&self.context.client);
        if let Some(node) = unless(404, nodes.patch_status(&key.name, &patch).await)? {
            self.nodes.wrote(key, &node);
        }
        Ok(())
    }

    async fn attach(&self, key: &Key, name: &str, snapshot: &Snapshot) -> Result<(), Failure> {
        let Some(desired) = snapshot.volumes.desired.get(name) else { return Ok(()) };
        let driver = match &desired.volume {
            AttachableVolume::Csi(volume) => &volume.driver,
            AttachableVolume::Flex(flex) => {
                let now = self.context.world.elapsed();
                self.metrics.begin_flex(&key.name, name, &flex.driver, Operation::Attach, now);
                self.flex.attach(&key.name, flex.clone());
                return Ok(());
            }
        };
        let source = VolumeAttachmentSource {
            persistent_volume_name: desired.inline.is_none().then(|| desired.object.clone()),
            inline_volume_spec: desired.inline.clone(),
            ..VolumeAttachmentSource::default()
        };
        let attachment = VolumeAttachment {
            metadata: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
            spec: VolumeAttachmentSpec {
                attacher: driver.clone(),
                node_name: key.name.clone(),
                source,
                ..VolumeAttachmentSpec::default()
            },
            ..VolumeAttachment::default()
        };
        let attachments: Api<VolumeAttachment> = Api::all(&self.context.client);
        let now = || self.context.world.elapsed();
        self.metrics.begin(name, self.operation_volume(&attachment), Operation::Attach, now());
        // an existing one will be in the cache soon
        let created = unless(409, attachments.create(&attachment).await);
        if created.is_err() {
            self.metrics.fail(name, now());
        }
        if let Some(created) = created? {
            self.attachments.wrote(key, &created);
            self.attachments.wrote(&volume_key(&desired.object), &created);
        }
        Ok(())
    }

    async fn detach(&self, key: &Key, name: &str) -> Result<(), Failure> {
        if self.flex.is_known(&key.name, name) {
            let driver = split_unique_name(name).map_or("", |(driver, _)| driver);
            let now = self.context.world.elapsed();
            self.metrics.begin_flex(&key.name, name, driver, Operation::Detach, now);
            self.flex.detach(&key.name, name);
            return Ok(());
        }
        let Some(attachment) = self.attachments.informer().get(&Key::new("", name)) else { return Ok(()) };
        let preconditions = Some(Box::new(of_uid(attachment.uid())));
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        let attachments: Api<VolumeAttachment> = Api::all(&self.context.client);
        let now = || self.context.world.elapsed();
        self.metrics.begin(name, self.operation_volume(&attachment), Operation::Detach, now());
        if let Err(why) = attachments.delete(name, &options).await
            && !why.is(404)
            && !why.is(409)
        {
            self.metrics.fail(name, now());
            return Err(why.into());
        }
        self.attachments.deleted(key, &attachment);
        Ok(())
    }

    /// Records a warning about the pods that use a volume, once.
    fn warn(&self, key: &Key, snapshot: &Snapshot, name: &str, why: String) {
        let before = self.warnings.lock().insert((key.name.clone(), name.to_owned()), why.clone());
        if before.as_ref() != Some(&why) {
            for pod in snapshot.pods(name) {
                self.context.events.record(&**pod, EventType::Warning, "FailedAttachVolume", &*why);
            }
        }
    }

    /// The pods that use a volume on other nodes; those in other namespaces are only counted.
    fn users_elsewhere(&self, key: &Key, snapshot: &Snapshot, name: &str) -> String {
        let Some(own) = snapshot.pods(name).first() else { return String::new() };
        let object = self.volumes.get(&Key::new("", snapshot.object(name)));
        let claim = object.as_deref().and_then(indexes::claim_of);
        let users = claim.map(|claim| claims::users(&self.pods, &claim)).unwrap_or_default();
        let (mut named, mut others) = (Vec::new(), 0);
        for pod in &users {
            match &*pod.spec.node_name {
                "" => {}
                node if node == key.name => {}
                _ if pod.namespace() == own.namespace() => named.push(pod.name()),
                _ => others += 1,
            }
        }
        named.sort_unstable();
        match (named.is_empty(), others) {
            (true, 0) => {
                "Volume is already exclusively attached to one node and can't be attached to another"
                    .to_owned()
            }
            (true, others) => format!("Volume is already used by {others} pod(s) in different namespaces"),
            (false, 0) => format!("Volume is already used by pod(s) {}", named.join(", ")),
            (false, others) => format!(
                "Volume is already used by pod(s) {} and {others} pod(s) in different namespaces",
                named.join(", ")
            ),
        }
    }

    /// Updates the warnings and the waiting times, and returns when to reconcile again.
    fn remember(&self, node: &str, snapshot: &Snapshot, plan: &Plan) -> Action {
        self.warnings
            .lock()
            .retain(|(on, name), _| on != node || plan.refused.contains(name) || plan.failed.contains(name));
        if !plan.refused.is_empty() {
            self.flex.wait_for_release(node);
        }
        let now = self.context.world.elapsed();
        let mut since = self.waiting_since.lock();
        since.retain(|(on, name), _| on != node || plan.waiting.contains(name));
        for name in &plan.waiting {
            since.entry((node.to_owned(), name.clone())).or_insert(now);
        }
        let left = plan.waiting.iter().map(|name| {
            let waited = snapshot.volumes.waited.get(name).copied().unwrap_or_default();
            self.options.force_detach_after.saturating_sub(waited).max(Duration::from_secs(1))
        });
        left.min().map_or(Action::AwaitChange, Action::Requeue)
    }
}
