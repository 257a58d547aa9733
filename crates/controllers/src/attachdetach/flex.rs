//! Volumes of FlexVolume drivers: programs on this machine attach them to nodes and detach them.
//!
//! ```text
//!            attach            success                     unused
//! (absent) ─────────► Attaching ─────► Attached ───────────────────► Detaching ─────► (absent)
//!                         │ failure        ▲  │ isattached: no           │ failure
//!                         ▼   later        │  └──────────► (absent)      ▼   later
//!                       Failed ─────► Attaching                     DetachFailed ─────► Detaching, or Attached
//! ```
//!
//! The state is here, and for the next manager in `status.volumesAttached` of nodes. A call is a task of its own, because a
//! program may hang; its node is reconciled when it ends.

use super::decide::{AttachmentState, NodeAttachment};
use api::core::v1::Node;
use client::flex_volume::{FlexDrivers, FlexSource, split_unique_name};
use client::{Key, Queue};
use env::{Upkeep, World};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(122);
/// The shortest time between two looks at all volumes.
const MIN_PERIOD: Duration = Duration::from_secs(1);
/// When a program that fails to start, or is absent, is looked at again.
const PROBE_RETRY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Attaching,
    Attached {
        device: String,
        /// Absent while only the status of the node tells of the volume.
        source: Option<Box<FlexSource>>,
    },
    /// The state of the device is not known: it has to be detached.
    Failed {
        error: String,
        retry_at: Duration,
    },
    Detaching,
    DetachFailed {
        device: String,
        retry_at: Duration,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Attachment {
    state: State,
    /// Calls in a row that failed.
    failures: u32,
}

impl Attachment {
    fn pause(&self) -> Duration {
        FIRST_RETRY.saturating_mul(1 << self.failures.min(16)).min(LAST_RETRY)
    }
}

/// Receives the ends of calls: node, volume, and whether the call succeeded.
type Finished = Box<dyn Fn(&str, &str, bool) + Send + Sync>;

/// See the module. Volumes have their unique names.
pub struct FlexAttachments {
    drivers: Option<FlexDrivers>,
    queue: Queue<Key>,
    world: World,
    /// By node and volume.
    attachments: Mutex<BTreeMap<NodeAttachment, Attachment>>,
    /// Nodes whose status has been read.
    adopted: Mutex<BTreeSet<String>>,
    /// Nodes that wait for the first words of a program, by driver.
    probing: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// Nodes with volumes that are attached elsewhere.
    refused: Mutex<BTreeSet<String>>,
    finished: OnceLock<Finished>,
}

fn node_key(name: &str) -> Key {
    Key::new("", name)
}

impl FlexAttachments {
    /// Without a directory there are no programs.
    pub fn new(directory: Option<&Path>, queue: Queue<Key>, world: World) -> Arc<Self> {
        Arc::new(FlexAttachments {
            drivers: directory.map(FlexDrivers::new),
            queue,
            world,
            attachments: Mutex::default(),
            adopted: Mutex::default(),
            probing: Mutex::default(),
            refused: Mutex::default(),
            finished: OnceLock::new(),
        })
    }

    /// Sets the receiver of the ends of calls: node, volume, and whether the call succeeded.
    pub fn on_finish(&self, receiver: impl Fn(&str, &str, bool) + Send + Sync + 'static) {
        let _ = self.finished.set(Box::new(receiver));
    }

    /// Whether a driver attaches volumes. A program without an answer yet is called first; then the node is reconciled again.
    pub fn attaches(self: &Arc<Self>, node: &str, driver: &str) -> bool {
        let Some(drivers) = &self.drivers else { return false };
        if let Some(known) = drivers.known_capabilities(driver) {
            return known.attaches;
        }
        if drivers.program(driver).is_err() {
            self.queue.add_after(node_key(node), PROBE_RETRY);
            return false;
        }
        let mut probing = self.probing.lock();
        let is_new = !probing.contains_key(driver);
        probing.entry(driver.to_owned()).or_default().insert(node.to_owned());
        drop(probing);
        if is_new {
            let (this, driver) = (self.clone(), driver.to_owned());
            tokio::spawn(async move { this.probe(&driver).await });
        }
        false
    }

    async fn probe(&self, driver: &str) {
        let Some(drivers) = &self.drivers else { return };
        let probed = drivers.capabilities(driver).await;
        if let Err(why) = &probed {
            tracing::warn!(driver, %why, "a FlexVolume driver does not start");
        }
        let pause = if probed.is_ok() { Duration::ZERO } else { PROBE_RETRY };
        let waiting = self.probing.lock().remove(driver).unwrap_or_default();
        waiting.iter().for_each(|node| self.queue.add_after(node_key(node), pause));
    }

    /// Takes over the attachments of managers before this one, once.
    pub fn adopt(&self, node: &Node) {
        let Some(drivers) = &self.drivers else { return };
        let name = &node.metadata.name;
        if !self.adopted.lock().insert(name.clone()) {
            return;
        }
        let mut attachments = self.attachments.lock();
        for volume in &node.status.volumes_attached {
            if split_unique_name(&volume.name).is_some_and(|(driver, _)| drivers.program(driver).is_ok()) {
                let state = State::Attached { device: volume.device_path.clone(), source: None };
                let key = (name.clone(), volume.name.clone());
                attachments.entry(key).or_insert(Attachment { state, failures: 0 });
            }
        }
    }

    /// Forgets a node that is gone.
    pub fn forget(&self, node: &str) {
        self.adopted.lock().remove(node);
    }

    /// Remembers that a node waits for volumes that are attached elsewhere.
    pub fn wait_for_release(&self, node: &str) {
        self.refused.lock().insert(node.to_owned());
    }

    /// The attachments of a node, of which `desired` are those that its pods use.
    pub fn states(
        &self,
        node: &str,
        desired: &BTreeMap<String, FlexSource>,
    ) -> BTreeMap<String, AttachmentState> {
        let now = self.world.elapsed();
        let mut states = BTreeMap::new();
        for ((on, volume), attachment) in &mut *self.attachments.lock() {
            if on != node {
                continue;
            }
            if let (State::Attached { source, .. }, Some(known)) =
                (&mut attachment.state, desired.get(volume))
            {
                source.get_or_insert_with(|| Box::new(known.clone()));
            }
            let state = match &attachment.state {
                State::Attaching => AttachmentState::default(),
                State::Attached { .. } => AttachmentState { attached: true, ..AttachmentState::default() },
                // it is attached anew
                State::Failed { retry_at, .. } if *retry_at <= now && desired.contains_key(volume) => {
                    continue;
                }
                State::Failed { error, .. } => {
                    AttachmentState { error: Some(error.clone()), ..AttachmentState::default() }
                }
                State::DetachFailed { retry_at, .. } if *retry_at <= now => {
                    AttachmentState { attached: true, ..AttachmentState::default() }
                }
                State::Detaching | State::DetachFailed { .. } => {
                    AttachmentState { is_terminating: true, ..AttachmentState::default() }
                }
            };
            states.insert(volume.clone(), state);
        }
        states
    }

    /// The nodes to which a volume is attached, or may be.
    pub fn nodes_of(&self, volume: &str) -> Vec<String> {
        let attachments = self.attachments.lock();
        attachments.keys().filter(|(_, it)| it == volume).map(|(node, _)| node.clone()).collect()
    }

    /// The path of the device of a volume, for the node.
    pub fn device(&self, node: &str, volume: &str) -> String {
        match self.attachments.lock().get(&(node.to_owned(), volume.to_owned())).map(|it| &it.state) {
            Some(State::Attached { device, .. } | State::DetachFailed { device, .. }) => device.clone(),
            _ => String::new(),
        }
    }

    pub fn is_known(&self, node: &str, volume: &str) -> bool {
        self.attachments.lock().contains_key(&(node.to_owned(), volume.to_owned()))
    }

    /// How many volumes of each driver are attached.
    pub fn counts(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for (_, volume) in self.attachments.lock().keys() {
            let driver = split_unique_name(volume).map_or("", |(driver, _)| driver);
            *counts.entry(driver.to_owned()).or_default() += 1;
        }
        counts
    }

    /// Moves an attachment to another state; calls that failed stay counted.
    fn set(&self, key: &NodeAttachment, state: State) {
        let mut attachments = self.attachments.lock();
        let failures = attachments.get(key).map_or(0, |it| it.failures);
        attachments.insert(key.clone(), Attachment { state, failures });
    }

    /// Begins to attach a volume.
    pub fn attach(self: &Arc<Self>, node: &str, source: FlexSource) {
        let key = (node.to_owned(), source.unique_name());
        self.set(&key, State::Attaching);
        let this = self.clone();
        tokio::spawn(async move {
            let Some(drivers) = &this.drivers else { return };
            let attached = drivers.attach(&source, &key.0).await;
            let source = Some(Box::new(source));
            let attached = attached.map(|device| State::Attached { device, source });
            this.finish(key, attached.map(Some).map_err(|why| why.to_string()), |error, retry_at| {
                State::Failed { error, retry_at }
            });
        });
    }

    /// Begins to detach a volume.
    pub fn detach(self: &Arc<Self>, node: &str, volume: &str) {
        let key = (node.to_owned(), volume.to_owned());
        let device = self.device(node, volume);
        self.set(&key, State::Detaching);
        let this = self.clone();
        tokio::spawn(async move {
            let (Some(drivers), Some((driver, volume))) = (&this.drivers, split_unique_name(&key.1)) else {
                return;
            };
            let detached = drivers.detach(driver, volume, &key.0).await;
            if let Err(why) = &detached {
                tracing::warn!(node = key.0, volume = key.1, %why, "DetachVolume.Detach failed");
            }
            let detached = detached.map(|()| None).map_err(|why| why.to_string());
            this.finish(key.clone(), detached, |_, retry_at| State::DetachFailed { device, retry_at });
        });
    }

    /// Ends a call: the next state is none for a volume that is detached.
    fn finish(
        &self,
        key: NodeAttachment,
        outcome: Result<Option<State>, String>,
        failed: impl FnOnce(String, Duration) -> State,
    ) {
        let succeeded = outcome.is_ok();
        let mut attachments = self.attachments.lock();
        match outcome {
            Ok(Some(state)) => drop(attachments.insert(key.clone(), Attachment { state, failures: 0 })),
            Ok(None) => {
                attachments.remove(&key);
                let waiting = std::mem::take(&mut *self.refused.lock());
                waiting.iter().for_each(|node| self.queue.add(node_key(node)));
            }
            Err(error) => {
                if let Some(attachment) = attachments.get_mut(&key) {
                    let pause = attachment.pause();
                    attachment.failures = attachment.failures.saturating_add(1);
                    attachment.state = failed(error, self.world.elapsed() + pause);
                    self.queue.add_after(node_key(&key.0), pause);
                }
            }
        }
        drop(attachments);
        if let Some(finished) = self.finished.get() {
            finished(&key.0, &key.1, succeeded);
        }
        self.queue.add(node_key(&key.0));
    }

    /// Asks programs again and again whether volumes are attached still; those that are not are attached anew.
    pub async fn verify(&self, period: Duration) {
        loop {
            env::sleep_upkeep(&self.world, Upkeep::check(period.max(MIN_PERIOD))).await;
            self.verify_all().await;
        }
    }

    pub async fn verify_all(&self) {
        let Some(drivers) = &self.drivers else { return };
        let attached: Vec<(NodeAttachment, FlexSource)> = {
            let attachments = self.attachments.lock();
            let known = attachments.iter().filter_map(|(key, it)| match &it.state {
                State::Attached { source: Some(source), .. } => Some((key.clone(), (**source).clone())),
                _ => None,
            });
            known.collect()
        };
        for (key, source) in attached {
            match drivers.is_attached(&source, &key.0).await {
                Ok(Some(false)) => {
                    tracing::warn!(node = key.0, volume = key.1, "a volume is not attached any more");
                    let mut attachments = self.attachments.lock();
                    if matches!(attachments.get(&key).map(|it| &it.state), Some(State::Attached { .. })) {
                        attachments.remove(&key);
                    }
                    drop(attachments);
                    self.queue.add(node_key(&key.0));
                }
                Ok(_) => {}
                Err(why) => tracing::warn!(node = key.0, volume = key.1, %why, "isattached failed"),
            }
        }
    }
}
