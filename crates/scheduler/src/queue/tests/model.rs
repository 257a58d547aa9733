//! A model of the queue, one plain list that is searched for everything, compared under random operations.

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Active,
    Backoff,
    Unschedulable,
    Gated,
}

struct Entry {
    queued: QueuedPod<Handle>,
    place: Place,
    order: u64,
}

#[derive(Default)]
struct Model {
    pods: Vec<Entry>,
    cycle: u64,
    moved: Option<u64>,
    next: u64,
}

fn expiry(queued: &QueuedPod<Handle>) -> Duration {
    queued.timestamp + Backoff::default().after(queued.attempts)
}

/// The place of a pod that may be tried.
fn open(queued: &mut QueuedPod<Handle>) -> Place {
    if !queued.pod.gates {
        return Place::Active;
    }
    queued.unschedulable_plugins.insert(Plugin::SchedulingGates);
    Place::Gated
}

impl Model {
    fn find(&mut self, name: &str) -> Option<&mut Entry> {
        self.pods.iter_mut().find(|entry| entry.queued.pod.name == name)
    }

    fn push(&mut self, queued: QueuedPod<Handle>, place: Place) {
        self.next += 1;
        self.pods.push(Entry { queued, place, order: self.next });
    }

    fn delete(&mut self, name: &str) {
        self.pods.retain(|entry| entry.queued.pod.name != name);
    }

    fn add(&mut self, now: Duration, pod: Handle) {
        self.delete(&pod.name);
        let mut queued = QueuedPod::new(pod, now);
        let place = open(&mut queued);
        self.push(queued, place);
    }

    fn update(&mut self, now: Duration, pod: Handle, is_changed: bool) {
        let Some(entry) = self.find(&pod.name) else { return self.add(now, pod) };
        entry.queued.pod = pod;
        let waits = matches!(entry.place, Place::Unschedulable | Place::Gated);
        if waits && is_changed {
            let backs_off = entry.place == Place::Unschedulable && expiry(&entry.queued) > now;
            entry.place = if backs_off { Place::Backoff } else { open(&mut entry.queued) };
        }
    }

    fn pop(&mut self) -> Option<QueuedPod<Handle>> {
        let active = self.pods.iter().enumerate().filter(|(_, entry)| entry.place == Place::Active);
        let rank = |entry: &Entry| (-entry.queued.pod.priority, entry.queued.timestamp, entry.order);
        let at = active.min_by_key(|(_, entry)| rank(entry))?.0;
        let mut queued = self.pods.remove(at).queued;
        queued.attempts += 1;
        self.cycle += 1;
        Some(queued)
    }

    fn hand_back(&mut self, now: Duration, mut queued: QueuedPod<Handle>) -> bool {
        if self.find(&queued.pod.name).is_some() {
            return false;
        }
        queued.timestamp = now;
        let place = if self.moved >= Some(self.cycle) { Place::Backoff } else { Place::Unschedulable };
        self.push(queued, place);
        true
    }

    fn move_where(&mut self, now: Duration, moves: impl Fn(&QueuedPod<Handle>) -> bool) {
        let unschedulable = self.pods.iter_mut().filter(|entry| entry.place == Place::Unschedulable);
        for entry in unschedulable.filter(|entry| moves(&entry.queued)) {
            let backs_off = expiry(&entry.queued) > now;
            entry.place = if backs_off { Place::Backoff } else { open(&mut entry.queued) };
        }
        self.moved = Some(self.cycle);
    }

    fn flush(&mut self, now: Duration) {
        for entry in self.pods.iter_mut().filter(|entry| entry.place == Place::Backoff) {
            if expiry(&entry.queued) <= now {
                entry.place = open(&mut entry.queued);
            }
        }
        let is_old = |queued: &QueuedPod<Handle>| now.saturating_sub(queued.timestamp) > s(300);
        if self.pods.iter().any(|it| it.place == Place::Unschedulable && is_old(&it.queued)) {
            self.move_where(now, is_old);
        }
    }

    fn counts(&self) -> [usize; 4] {
        let count = |place| self.pods.iter().filter(|entry| entry.place == place).count();
        [Place::Active, Place::Backoff, Place::Unschedulable, Place::Gated].map(count)
    }
}

/// Whether an event helps a pod, read off the table for this one plugin.
fn helps(event: &ClusterEvent, queued: &QueuedPod<Handle>) -> bool {
    let plugins = queued.unschedulable_plugins;
    let registered = |plugin| !PluginEvents::new(set(&[plugin])).interested(event).is_empty();
    event.is_wildcard() || plugins.is_empty() || plugins.iter().any(registered)
}

fn compare(seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let events = [
        ClusterEvent::NODE_ADD,
        ClusterEvent::NODE_TAINT_CHANGE,
        ClusterEvent::ASSIGNED_POD_DELETE,
        ClusterEvent::PV_UPDATE,
        ClusterEvent::WILDCARD,
    ];
    let (mut queue, mut model) = (queue(), Model::default());
    let mut popped: Vec<QueuedPod<Handle>> = Vec::new();
    let mut now = s(0);
    for step in 0..500 {
        now += Duration::from_millis(random(1500));
        if random(100) == 0 {
            now += s(290);
        }
        let name = format!("p{}", random(12));
        let (gates, affinity) = (random(4) == 0, random(2) == 0);
        let priority = i32::try_from(random(3)).unwrap();
        let pod = with(&name, |pod| (pod.gates, pod.affinity, pod.priority) = (gates, affinity, priority));
        match random(10) {
            0 | 1 => {
                queue.add(now, pod.clone());
                model.add(now, pod);
            }
            2 => {
                let is_changed = random(2) == 0;
                queue.update(now, None, pod.clone(), is_changed);
                model.update(now, pod, is_changed);
            }
            3 => {
                queue.delete(&pod);
                model.delete(&name);
            }
            4 | 5 => {
                let (found, expected) = (queue.pop(), model.pop());
                assert_eq!(found, expected, "seed {seed}, step {step}");
                popped.extend(found);
            }
            6 | 7 => {
                let Some(mut queued) = popped.pop() else { continue };
                let plugin = Plugin::ALL[usize::try_from(random(20)).unwrap()];
                queued.unschedulable_plugins = if random(5) == 0 { set(&[]) } else { set(&[plugin]) };
                let cycle = queue.scheduling_cycle();
                let handed = queue.add_unschedulable(now, queued.clone(), cycle).is_ok();
                assert_eq!(handed, model.hand_back(now, queued), "seed {seed}, step {step}");
            }
            8 if random(2) == 0 => {
                let event = &events[usize::try_from(random(5)).unwrap()];
                let accepts = |pod: &Handle| pod.priority != 1;
                queue.move_on(now, event, accepts);
                model.move_where(now, |queued| accepts(&queued.pod) && helps(event, queued));
            }
            8 => {
                queue.assigned_pod_added(now, |pod| pod.priority != 1);
                let event = &ClusterEvent::ASSIGNED_POD_ADD;
                model.move_where(now, |queued| {
                    queued.pod.affinity && queued.pod.priority != 1 && helps(event, queued)
                });
            }
            _ => {
                queue.flush(now);
                model.flush(now);
            }
        }
        assert_eq!(pending(&queue), model.counts(), "seed {seed}, step {step}");
        assert_eq!(queue.pods().count(), model.pods.len(), "seed {seed}, step {step}");
    }
}

#[test]
fn random_operations_do_what_they_do_to_a_plain_list() {
    for seed in 0..100 {
        compare(seed);
    }
}
