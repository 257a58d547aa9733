//! The queue itself: the moves of pods between active, backoff, unschedulable and gated.

use super::backoff::Backoff;
use super::event::ClusterEvent;
use super::metrics::{Counts, Pending, QueueName};
use super::nominator::{Nomination, Nominator};
use super::plugin_events::PluginEvents;
use super::plugin_set::PluginSet;
use super::pod::{QueuePod, QueuedPod};
use super::slots::{Entry, Place, Slot, Slots};
use super::unschedulable::{Keys, Unschedulable};
use crate::framework::profile::{Plugin, Profile};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// Values of the label `event` that are no cluster events.
const POD_ADD: &str = "PodAdd";
const SCHEDULE_ATTEMPT_FAILURE: &str = "ScheduleAttemptFailure";
const BACKOFF_COMPLETE: &str = "BackoffComplete";
const FORCE_ACTIVATE: &str = "ForceActivate";

/// Settings of a queue.
#[derive(Debug, Clone)]
pub struct Options {
    pub backoff: Backoff,
    /// The longest time that a pod stays unschedulable without an event.
    pub max_in_unschedulable: Duration,
    /// The scheduler names whose profiles run SchedulingGates before a pod becomes active.
    pub gated_profiles: BTreeSet<String>,
    /// The plugins of all profiles.
    pub plugins: PluginSet,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            backoff: Backoff::default(),
            max_in_unschedulable: Duration::from_secs(300),
            gated_profiles: BTreeSet::new(),
            plugins: Plugin::ALL.into_iter().collect(),
        }
    }
}

impl Options {
    /// Default times, and the plugins of these profiles.
    pub fn for_profiles(profiles: &[Profile]) -> Self {
        let gates = |profile: &&Profile| profile.plugins.pre_enqueue.contains(&Plugin::SchedulingGates);
        Options {
            gated_profiles: profiles.iter().filter(gates).map(|it| it.scheduler_name.clone()).collect(),
            plugins: profiles.iter().flat_map(plugins_of).collect(),
            ..Options::default()
        }
    }
}

fn plugins_of(profile: &Profile) -> impl Iterator<Item = Plugin> {
    let it = &profile.plugins;
    let lists = [
        &it.pre_enqueue,
        &it.queue_sort,
        &it.pre_filter,
        &it.filter,
        &it.post_filter,
        &it.pre_score,
        &it.reserve,
        &it.permit,
        &it.pre_bind,
        &it.bind,
        &it.post_bind,
    ];
    lists.into_iter().flatten().copied().chain(it.score.iter().map(|(plugin, _)| *plugin))
}

/// The error of handing back a pod that was added again in the meantime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AlreadyQueued {
    #[error("Pod {0} is already present in unschedulable queue")]
    Unschedulable(String),
    #[error("Pod {0} is already present in the active queue")]
    Active(String),
    #[error("Pod {0} is already present in the backoff queue")]
    Backoff(String),
}

/// See [the module](super).
#[derive(Debug, Clone)]
pub struct SchedulingQueue<P> {
    backoff_policy: Backoff,
    max_in_unschedulable: Duration,
    gated_profiles: BTreeSet<String>,
    events: PluginEvents,
    slots: Slots<P>,
    /// By priority, then by the time of addition.
    active: BTreeSet<(Reverse<i32>, Duration, u64, Slot)>,
    /// By the end of the backoff.
    backoff: BTreeSet<(Duration, u64, Slot)>,
    unschedulable: Unschedulable,
    gated: usize,
    nominator: Nominator<P>,
    /// Grows with each pop.
    scheduling_cycle: u64,
    /// The scheduling cycle of the last move: a pod that failed in it may have missed the event.
    move_request_cycle: Option<u64>,
    next_order: u64,
    counts: Counts,
}

impl<P: QueuePod> SchedulingQueue<P> {
    pub fn new(options: Options) -> Self {
        SchedulingQueue {
            backoff_policy: options.backoff,
            max_in_unschedulable: options.max_in_unschedulable,
            gated_profiles: options.gated_profiles,
            events: PluginEvents::new(options.plugins),
            slots: Slots::new(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            unschedulable: Unschedulable::default(),
            gated: 0,
            nominator: Nominator::default(),
            scheduling_cycle: 0,
            move_request_cycle: None,
            next_order: 0,
            counts: Counts::default(),
        }
    }

    /// Adds a new pod. Returns whether it is active.
    pub fn add(&mut self, now: Duration, pod: P) -> bool {
        if let Some(slot) = self.slots.find(&pod) {
            self.remove(slot);
        }
        let is_active = self.add_new(now, pod.clone());
        if is_active {
            self.counts.count_incoming(QueueName::Active, POD_ADD);
            self.nominator.add(pod, &Nomination::AsInStatus);
        }
        is_active
    }

    /// Takes the first active pod for an attempt.
    pub fn pop(&mut self) -> Option<QueuedPod<P>> {
        let (_, _, _, slot) = *self.active.first()?;
        let mut queued = self.remove(slot)?.queued;
        queued.attempts = queued.attempts.saturating_add(1);
        self.scheduling_cycle += 1;
        Some(queued)
    }

    /// Hands back a pod whose attempt failed. `scheduling_cycle` is the cycle of the failure: when something moved
    /// since, the pod is tried again after its backoff instead of waiting for an event that it may have missed.
    pub fn add_unschedulable(
        &mut self,
        now: Duration,
        mut queued: QueuedPod<P>,
        scheduling_cycle: u64,
    ) -> Result<(), AlreadyQueued> {
        let pod = queued.pod.clone();
        if let Some(entry) = self.slots.find(&pod).and_then(|slot| self.slots.get(slot)) {
            let name = format!("{}/{}", pod.namespace(), pod.name());
            return Err(match entry.place {
                Place::Active => AlreadyQueued::Active(name),
                Place::Backoff => AlreadyQueued::Backoff(name),
                Place::Unschedulable | Place::Gated => AlreadyQueued::Unschedulable(name),
            });
        }
        queued.timestamp = now;
        self.counts.add_rejections(pod.scheduler_name(), queued.unschedulable_plugins);
        let moved = self.move_request_cycle.is_some_and(|cycle| cycle >= scheduling_cycle);
        let (place, queue) = match moved {
            true => (Place::Backoff, QueueName::Backoff),
            false => (Place::Unschedulable, QueueName::Unschedulable),
        };
        self.insert(queued, place);
        self.counts.count_incoming(queue, SCHEDULE_ATTEMPT_FAILURE);
        self.nominator.add(pod, &Nomination::AsInStatus);
        Ok(())
    }

    /// Follows an update of a pod without a node. `is_changed` comes from [`is_pod_updated`](super::is_pod_updated):
    /// only then may an unschedulable pod have become schedulable. Returns whether the pod became active.
    pub fn update(&mut self, now: Duration, old: Option<&P>, new: P, is_changed: bool) -> bool {
        let Some(slot) = self.slots.find(&new) else {
            let is_active = self.add_new(now, new.clone());
            if is_active {
                self.nominator.add(new, &Nomination::AsInStatus);
            }
            return is_active;
        };
        self.nominator.update(old, new.clone());
        let Some(place) = self.detach(slot) else { return false };
        if let Some(entry) = self.slots.get_mut(slot) {
            entry.queued.pod = new;
        }
        let waits = matches!(place, Place::Unschedulable | Place::Gated);
        if !waits || !is_changed {
            self.attach(slot, place);
            return false;
        }
        if place == Place::Unschedulable && self.is_backing_off(now, slot) {
            self.attach(slot, Place::Backoff);
            return false;
        }
        self.attach_active(slot)
    }

    /// Forgets a pod, wherever it is, and its nomination.
    pub fn delete(&mut self, pod: &P) {
        self.nominator.delete(pod.uid());
        if let Some(slot) = self.slots.find(pod) {
            self.remove(slot);
        }
    }

    /// Moves pods to active at once, without regard to backoff. Returns whether one became active.
    pub fn activate<'p>(&mut self, pods: impl IntoIterator<Item = &'p P>) -> bool
    where
        P: 'p,
    {
        let mut activated = false;
        for pod in pods {
            let Some(slot) = self.slots.find(pod) else { continue };
            let place = self.slots.get(slot).map(|entry| entry.place);
            if place.is_none_or(|place| place == Place::Active) {
                continue;
            }
            self.detach(slot);
            if self.attach_active(slot) {
                activated = true;
                self.counts.count_incoming(QueueName::Active, FORCE_ACTIVATE);
                if let Some(entry) = self.slots.get(slot) {
                    self.nominator.add(entry.queued.pod.clone(), &Nomination::AsInStatus);
                }
            }
        }
        activated
    }

    /// Moves the unschedulable pods that an event may help: a plugin that rejected the pod registered for the event,
    /// and `precheck` accepts the pod. Returns whether one became active.
    pub fn move_on(
        &mut self,
        now: Duration,
        event: &ClusterEvent,
        mut precheck: impl FnMut(&P) -> bool,
    ) -> bool {
        let candidates = match event.is_wildcard() {
            true => self.unschedulable.all(),
            false => self.unschedulable.rejected_by(self.events.interested(event)),
        };
        let accepts = |slot: &Slot| self.slots.get(*slot).is_some_and(|entry| precheck(&entry.queued.pod));
        let pods = candidates.into_iter().filter(accepts).collect();
        self.move_pods(now, pods, event)
    }

    /// Follows a pod that got a node. `matches` is whether the new pod satisfies a required affinity term of a pending
    /// pod. Returns whether a pod became active.
    pub fn assigned_pod_added(&mut self, now: Duration, matches: impl FnMut(&P) -> bool) -> bool {
        self.move_matching(now, &ClusterEvent::ASSIGNED_POD_ADD, matches)
    }

    /// Follows an update of a pod with a node, like [`Self::assigned_pod_added`].
    pub fn assigned_pod_updated(&mut self, now: Duration, matches: impl FnMut(&P) -> bool) -> bool {
        self.move_matching(now, &ClusterEvent::ASSIGNED_POD_UPDATE, matches)
    }

    /// Moves pods whose backoff is over, and pods that have been unschedulable for too long. Returns whether one
    /// became active.
    pub fn flush(&mut self, now: Duration) -> bool {
        let mut activated = false;
        while let Some((expiry, _, slot)) = self.backoff.first().copied() {
            if expiry > now {
                break;
            }
            self.detach(slot);
            if self.attach_active(slot) {
                activated = true;
                self.counts.count_incoming(QueueName::Active, BACKOFF_COMPLETE);
            }
        }
        if let Some(deadline) = now.checked_sub(self.max_in_unschedulable) {
            let pods = self.unschedulable.older_than(deadline);
            if !pods.is_empty() {
                activated |= self.move_pods(now, pods, &ClusterEvent::UNSCHEDULABLE_TIMEOUT);
            }
        }
        activated
    }

    /// The time at which [`Self::flush`] has work next.
    pub fn next_wakeup(&self) -> Option<Duration> {
        let backoff = self.backoff.first().map(|(expiry, _, _)| *expiry);
        let timeout = self.unschedulable.oldest().map(|timestamp| {
            timestamp.saturating_add(self.max_in_unschedulable).saturating_add(Duration::from_nanos(1))
        });
        [backoff, timeout].into_iter().flatten().min()
    }

    /// The number of pops so far.
    pub fn scheduling_cycle(&self) -> u64 {
        self.scheduling_cycle
    }

    pub fn nominator(&self) -> &Nominator<P> {
        &self.nominator
    }

    pub fn nominator_mut(&mut self) -> &mut Nominator<P> {
        &mut self.nominator
    }

    /// The events that are worth a [`Self::move_on`].
    pub fn events(&self) -> &PluginEvents {
        &self.events
    }

    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    pub fn pending(&self) -> Pending {
        Pending {
            active: self.active.len(),
            backoff: self.backoff.len(),
            unschedulable: self.unschedulable.len(),
            gated: self.gated,
        }
    }

    /// All pending pods, in no order.
    pub fn pods(&self) -> impl Iterator<Item = &P> {
        self.slots.iter().map(|entry| &entry.queued.pod)
    }

    /// Pods that came into each queue so far, by event: `queue_incoming_pods_total`.
    pub fn incoming(&self) -> impl Iterator<Item = (QueueName, &'static str, u64)> {
        self.counts.incoming()
    }

    /// Pending pods by scheduler name and plugin that rejected them: `unschedulable_pods`.
    pub fn rejected(&self) -> impl Iterator<Item = (&str, Plugin, u64)> {
        self.counts.rejected()
    }

    fn move_matching(
        &mut self,
        now: Duration,
        event: &ClusterEvent,
        mut matches: impl FnMut(&P) -> bool,
    ) -> bool {
        let interested = self.events.interested(event);
        let moves = |slot: &Slot| {
            self.slots.get(*slot).is_some_and(|entry| {
                let plugins = entry.queued.unschedulable_plugins;
                (plugins.is_empty() || plugins.intersects(interested)) && matches(&entry.queued.pod)
            })
        };
        let pods = self.unschedulable.with_affinity().filter(moves).collect();
        self.move_pods(now, pods, event)
    }

    /// Moves unschedulable pods to backoff or active. A move without pods counts too: a pod in an attempt may have
    /// missed the event.
    fn move_pods(&mut self, now: Duration, pods: Vec<Slot>, event: &ClusterEvent) -> bool {
        let mut activated = false;
        for slot in pods {
            self.detach(slot);
            if self.is_backing_off(now, slot) {
                self.attach(slot, Place::Backoff);
                self.counts.count_incoming(QueueName::Backoff, event.label);
            } else if self.attach_active(slot) {
                activated = true;
                self.counts.count_incoming(QueueName::Active, event.label);
            }
        }
        self.move_request_cycle = Some(self.scheduling_cycle);
        activated
    }

    fn add_new(&mut self, now: Duration, pod: P) -> bool {
        let slot = self.insert_detached(QueuedPod::new(pod, now));
        self.attach_active(slot)
    }

    fn insert(&mut self, queued: QueuedPod<P>, place: Place) {
        let slot = self.insert_detached(queued);
        self.attach(slot, place);
    }

    fn insert_detached(&mut self, queued: QueuedPod<P>) -> Slot {
        let order = self.next_order;
        self.next_order += 1;
        self.slots.insert(Entry { queued, place: Place::Active, order })
    }

    fn remove(&mut self, slot: Slot) -> Option<Entry<P>> {
        self.detach(slot);
        let entry = self.slots.remove(slot)?;
        let profile = entry.queued.pod.scheduler_name();
        self.counts.remove_rejections(profile, entry.queued.unschedulable_plugins);
        Some(entry)
    }

    fn expiry(&self, queued: &QueuedPod<P>) -> Duration {
        queued.timestamp.saturating_add(self.backoff_policy.after(queued.attempts))
    }

    fn is_backing_off(&self, now: Duration, slot: Slot) -> bool {
        self.slots.get(slot).is_some_and(|entry| self.expiry(&entry.queued) > now)
    }

    /// Puts a pod of no sub-queue into active, or into gated while a gate is closed.
    fn attach_active(&mut self, slot: Slot) -> bool {
        let Some(entry) = self.slots.get_mut(slot) else { return false };
        let pod = &entry.queued.pod;
        let is_gated = pod.has_scheduling_gates() && self.gated_profiles.contains(pod.scheduler_name());
        if is_gated && !entry.queued.unschedulable_plugins.contains(Plugin::SchedulingGates) {
            entry.queued.unschedulable_plugins.insert(Plugin::SchedulingGates);
            let plugins = PluginSet::from_iter([Plugin::SchedulingGates]);
            self.counts.add_rejections(pod.scheduler_name(), plugins);
        }
        self.attach(slot, if is_gated { Place::Gated } else { Place::Active });
        !is_gated
    }

    /// Puts a pod of no sub-queue into one.
    fn attach(&mut self, slot: Slot, place: Place) {
        let Some(entry) = self.slots.get_mut(slot) else { return };
        entry.place = place;
        let Some(entry) = self.slots.get(slot) else { return };
        match place {
            Place::Active => {
                self.active.insert(active_key(slot, entry));
            }
            Place::Backoff => {
                self.backoff.insert((self.expiry(&entry.queued), entry.order, slot));
            }
            Place::Unschedulable => self.unschedulable.insert(slot, index_keys(entry)),
            Place::Gated => self.gated += 1,
        }
    }

    /// Takes a pod out of its sub-queue. A second call would find it where it was: it is followed by an attach or the
    /// end of the pod.
    fn detach(&mut self, slot: Slot) -> Option<Place> {
        let entry = self.slots.get(slot)?;
        match entry.place {
            Place::Active => {
                self.active.remove(&active_key(slot, entry));
            }
            Place::Backoff => {
                self.backoff.remove(&(self.expiry(&entry.queued), entry.order, slot));
            }
            Place::Unschedulable => self.unschedulable.remove(slot, index_keys(entry)),
            Place::Gated => self.gated = self.gated.saturating_sub(1),
        }
        Some(entry.place)
    }
}

fn active_key<P: QueuePod>(slot: Slot, entry: &Entry<P>) -> (Reverse<i32>, Duration, u64, Slot) {
    (Reverse(entry.queued.pod.priority()), entry.queued.timestamp, entry.order, slot)
}

fn index_keys<P: QueuePod>(entry: &Entry<P>) -> Keys {
    Keys {
        plugins: entry.queued.unschedulable_plugins,
        timestamp: entry.queued.timestamp,
        order: entry.order,
        has_affinity: entry.queued.pod.has_required_affinity(),
    }
}
