//! The work queue: keys that wait for a worker, each once, with backoff after failures and a shared rate limit.
//!
//! Invariants: a key that is added while it is worked on comes again after that, once; a key that failed comes
//! again later each time, until it is forgotten; all that come again after failures share a rate.

use env::{Upkeep, World};
use metrics::Histogram;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// The first pause after a failure, and the longest.
const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1000);
/// How many failures a second may come again at once, and how many more in a burst.
const RATE: f64 = 10.0;
const BURST: f64 = 100.0;

/// See the module. Cheap to clone.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Queue { shared: self.shared.clone() }
    }
}

struct Shared<T> {
    world: World,
    state: Mutex<State<T>>,
    notify: Notify,
}

struct State<T> {
    /// In the order in which they came.
    ready: VecDeque<T>,
    /// Those in `ready`, and those that come again when they are done; since when they wait.
    waiting: HashMap<T, Duration>,
    /// Since when they are worked on.
    busy: HashMap<T, Duration>,
    delayed: DelayQueue<T, ()>,
    upkeep: DelayQueue<T, Upkeep>,
    failures: HashMap<T, u32>,
    /// When the next failure may come again at the shared rate.
    allowance: f64,
    refilled: Option<Duration>,
    closed: bool,
    counts: Counts,
    times: Option<Times>,
}

/// Keys that come later, each with a payload.
struct DelayQueue<T, P> {
    later: BinaryHeap<Reverse<(Duration, u64)>>,
    /// Due times of the keys; of several times for one key the earliest counts.
    due: HashMap<T, (Duration, u64)>,
    keys: HashMap<u64, (T, P)>,
    next_id: u64,
}

impl<T, P> Default for DelayQueue<T, P> {
    fn default() -> Self {
        DelayQueue { later: BinaryHeap::new(), due: HashMap::new(), keys: HashMap::new(), next_id: 0 }
    }
}

impl<T: Clone + Eq + Hash, P: Copy> DelayQueue<T, P> {
    fn add(&mut self, key: T, at: Duration, payload: P) {
        if self.due.get(&key).is_some_and(|(due, _)| *due <= at) {
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        if let Some((_, old)) = self.due.insert(key.clone(), (at, id)) {
            self.keys.remove(&old);
        }
        self.keys.insert(id, (key, payload));
        self.later.push(Reverse((at, id)));
    }

    /// Hands on the due keys; returns the time of the next.
    fn ripen(&mut self, now: Duration, mut add: impl FnMut(T)) -> Option<(Duration, P)> {
        while let Some(Reverse((at, id))) = self.later.peek().copied() {
            if let Some((_, payload)) = self.keys.get(&id)
                && at > now
            {
                return Some((at, *payload));
            }
            self.later.pop();
            // one that was set to an earlier time has no key any more
            if let Some((key, _)) = self.keys.remove(&id) {
                self.due.remove(&key);
                add(key);
            }
        }
        None
    }
}

/// The histograms of a queue: how long keys waited, and how long workers took.
#[derive(Clone)]
pub struct Times {
    pub waited: Histogram,
    pub worked: Histogram,
}

/// Statistics of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub adds: u64,
    pub retries: u64,
    pub depth: u64,
    /// How long the keys have been worked on that still are: all together, and the one that has been longest.
    pub unfinished: Duration,
    pub longest: Duration,
}

impl<T: Clone + Eq + Hash> Queue<T> {
    /// An empty queue whose delays go by the world's clock.
    pub fn new(world: &World) -> Self {
        let state = State {
            ready: VecDeque::new(),
            waiting: HashMap::new(),
            busy: HashMap::new(),
            delayed: DelayQueue::default(),
            upkeep: DelayQueue::default(),
            failures: HashMap::new(),
            allowance: BURST,
            refilled: None,
            closed: false,
            counts: Counts::default(),
            times: None,
        };
        let shared = Shared { world: world.clone(), state: Mutex::new(state), notify: Notify::new() };
        Queue { shared: Arc::new(shared) }
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    fn add(&mut self, key: T, now: Duration) -> bool {
        if self.waiting.contains_key(&key) {
            return false;
        }
        self.counts.adds += 1;
        self.waiting.insert(key.clone(), now);
        if self.busy.contains_key(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    /// Moves due keys; returns the time of the next, and of the next for upkeep.
    fn ripen(&mut self, now: Duration) -> (Option<Duration>, Option<(Duration, Upkeep)>) {
        let mut ripe = Vec::new();
        let next = self.delayed.ripen(now, |key| ripe.push(key));
        let next_upkeep = self.upkeep.ripen(now, |key| ripe.push(key));
        for key in ripe {
            self.add(key, now);
        }
        (next.map(|(at, ())| at), next_upkeep)
    }

    /// How long a key that has failed so often waits.
    fn pause(&mut self, key: &T, now: Duration) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let own = FIRST.saturating_mul(1u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(LONGEST);
        *failures = failures.saturating_add(1);
        let passed = self.refilled.map_or(0.0, |then| (now.saturating_sub(then)).as_secs_f64());
        self.refilled = Some(now);
        self.allowance = (self.allowance + passed * RATE).min(BURST) - 1.0;
        let shared = Duration::from_secs_f64((-self.allowance / RATE).max(0.0));
        own.max(shared)
    }
}

impl<T: Clone + Eq + Hash> Queue<T> {
    fn now(&self) -> Duration {
        self.shared.world.elapsed()
    }

    /// To be worked on as soon as a worker is free.
    pub fn add(&self, key: T) {
        if self.shared.state.lock().add(key, self.now()) {
            self.shared.notify.notify_one();
        }
    }

    /// The same, but not before this has passed.
    pub fn add_after(&self, key: T, pause: Duration) {
        if pause.is_zero() {
            return self.add(key);
        }
        self.shared.state.lock().delayed.add(key, self.now().saturating_add(pause), ());
        self.shared.notify.notify_one();
    }

    /// The same for upkeep: a paused clock may put it off by whole periods.
    pub fn add_upkeep_after(&self, key: T, pause: Duration, upkeep: Upkeep) {
        self.shared.state.lock().upkeep.add(key, self.now().saturating_add(pause), upkeep);
        self.shared.notify.notify_one();
    }

    /// The same after a failure.
    pub fn add_failed(&self, key: T) {
        let now = self.now();
        {
            let mut state = self.shared.state.lock();
            state.counts.retries += 1;
            let pause = state.pause(&key, now);
            state.delayed.add(key, now.saturating_add(pause), ());
        }
        self.shared.notify.notify_one();
    }

    /// How often a key has failed in a row.
    pub fn failures(&self, key: &T) -> u32 {
        self.shared.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// A key that went well starts from the beginning when it fails again.
    pub fn forget(&self, key: &T) {
        self.shared.state.lock().failures.remove(key);
    }

    /// The next key; nothing once the queue is closed. It is [`done`](Self::done) when it has been worked on.
    pub async fn next(&self) -> Option<T> {
        loop {
            let notify = self.shared.notify.notified();
            let due = {
                let mut state = self.shared.state.lock();
                if state.closed {
                    // the others are woken, too
                    self.shared.notify.notify_one();
                    return None;
                }
                let now = self.now();
                let due = state.ripen(now);
                if let Some(key) = state.ready.pop_front() {
                    if let (Some(since), Some(times)) = (state.waiting.remove(&key), &state.times) {
                        times.waited.took(now.saturating_sub(since));
                    }
                    state.busy.insert(key.clone(), now);
                    if !state.ready.is_empty() || due.0.is_some() || due.1.is_some() {
                        self.shared.notify.notify_one();
                    }
                    return Some(key);
                }
                due
            };
            let (due, upkeep) = due;
            let world = &self.shared.world;
            tokio::select! {
                biased;
                () = notify => {}
                () = world.sleep_until(due.unwrap_or_default()), if due.is_some() => {}
                () = sleep_upkeep(world, upkeep), if upkeep.is_some() => {}
            }
        }
    }

    /// A key has been worked on; if it was added meanwhile it comes again.
    pub fn done(&self, key: &T) {
        let now = self.now();
        let mut state = self.shared.state.lock();
        if let (Some(since), Some(times)) = (state.busy.remove(key), &state.times) {
            times.worked.took(now.saturating_sub(since));
        }
        if state.waiting.contains_key(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.shared.notify.notify_one();
        }
    }

    /// No more keys.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.notify.notify_one();
    }

    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }
}

async fn sleep_upkeep(world: &World, upkeep: Option<(Duration, Upkeep)>) {
    if let Some((at, upkeep)) = upkeep {
        world.sleep_upkeep_until(at, upkeep).await;
    }
}

impl<T> Shared<T> {
    fn counts(&self) -> Counts {
        let state = self.state.lock();
        let mut counts = Counts { depth: state.ready.len() as u64, ..state.counts };
        let now = self.world.elapsed();
        for since in state.busy.values() {
            let busy = now.saturating_sub(*since);
            counts.unfinished += busy;
            counts.longest = counts.longest.max(busy);
        }
        counts
    }
}

/// A source of [`Counts`], for metrics.
pub trait CountSource: Send + Sync {
    fn counts(&self) -> Counts;
}

impl<T: Send + Sync> CountSource for Shared<T> {
    fn counts(&self) -> Counts {
        Shared::counts(self)
    }
}

impl<T: Send + Sync + 'static> Queue<T> {
    /// Observes durations in these histograms from now on.
    pub fn timed(&self, times: Times) {
        self.shared.state.lock().times = Some(times);
    }

    /// The statistics, while the queue exists.
    pub fn counted(&self) -> Weak<dyn CountSource> {
        let shared: Arc<dyn CountSource> = self.shared.clone();
        Arc::downgrade(&shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn world() -> World {
        env::Seeded::new(0, 0)
    }

    fn next(queue: &Queue<u8>) -> Option<u8> {
        queue.next().now_or_never().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_on_once_at_a_time() {
        let queue = Queue::new(&world());
        queue.add(1);
        queue.add(2);
        queue.add(1);
        assert_eq!((next(&queue), next(&queue), next(&queue)), (Some(1), Some(2), None));
        // it changes while it is worked on, twice
        queue.add(1);
        queue.add(1);
        assert_eq!(next(&queue), None);
        queue.done(&2);
        queue.done(&1);
        assert_eq!((next(&queue), next(&queue)), (Some(1), None));
        queue.done(&1);
        assert_eq!(next(&queue), None);
        // a key that waits already is not added again
        assert_eq!(queue.counts().adds, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn queue_and_work_durations_are_observed() {
        let queue = Queue::new(&world());
        const BUCKETS: metrics::Buckets =
            metrics::Buckets { bounds: &metrics::seconds([1.5, 6.0]), unit: 1e9 };
        let times = Times { waited: Histogram::new(BUCKETS), worked: Histogram::new(BUCKETS) };
        queue.timed(times.clone());
        queue.add(1);
        tokio::time::advance(Duration::from_secs(2)).await;
        queue.add(2);
        assert_eq!(next(&queue), Some(1));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(next(&queue), Some(2));
        tokio::time::advance(Duration::from_secs(4)).await;
        let counts = queue.counts();
        assert_eq!((counts.unfinished.as_secs(), counts.longest.as_secs()), (11, 7));
        assert_eq!((times.waited.count(), times.worked.count()), (2, 0));
        queue.done(&1);
        assert_eq!((times.worked.count(), queue.counts().unfinished.as_secs()), (1, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_keys_are_due_at_their_earliest_time() {
        let queue = Queue::new(&world());
        queue.add_after(1, Duration::from_secs(10));
        queue.add_after(2, Duration::from_secs(5));
        queue.add_after(1, Duration::from_secs(2));
        queue.add_after(1, Duration::from_secs(20));
        let began = tokio::time::Instant::now();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let key = queue.next().await.unwrap();
            queue.done(&key);
            seen.push((key, began.elapsed().as_secs()));
        }
        assert_eq!(seen, [(1, 2), (2, 5)]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(next(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn upkeep_does_not_put_off_other_delays() {
        let queue = Queue::new(&world());
        let upkeep = Upkeep::check(Duration::from_secs(5));
        queue.add_upkeep_after(1, Duration::from_secs(5), upkeep);
        // later than upkeep, which may be left out
        queue.add_after(1, Duration::from_secs(7));
        queue.add_upkeep_after(2, Duration::from_secs(6), upkeep);
        let began = tokio::time::Instant::now();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let key = queue.next().await.unwrap();
            queue.done(&key);
            seen.push((key, began.elapsed().as_secs()));
        }
        assert_eq!(seen, [(1, 5), (2, 6), (1, 7)]);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_keys_back_off_exponentially() {
        let queue = Queue::new(&world());
        let began = tokio::time::Instant::now();
        let mut at = Vec::new();
        for _ in 0..4 {
            queue.add_failed(1);
            assert_eq!(queue.next().await, Some(1));
            queue.done(&1);
            at.push(began.elapsed().as_millis());
        }
        assert_eq!(at, [5, 15, 35, 75]);
        assert_eq!(queue.failures(&1), 4);
        queue.forget(&1);
        assert_eq!((queue.failures(&1), queue.counts().retries), (0, 4));
        // however many there are, they come at a shared rate
        let began = tokio::time::Instant::now();
        for key in 0..=200 {
            queue.add_failed(key);
        }
        while began.elapsed() < Duration::from_secs(60) {
            let Ok(Some(key)) = tokio::time::timeout(Duration::from_secs(30), queue.next()).await else {
                break;
            };
            queue.done(&key);
            at.push(began.elapsed().as_millis());
        }
        assert!(at.last().is_some_and(|last| *last >= 9_000), "{at:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_ends_all_workers() {
        let queue: Queue<u8> = Queue::new(&world());
        let workers: Vec<_> = (0..3)
            .map(|_| {
                tokio::spawn({
                    let queue = queue.clone();
                    async move { queue.next().await }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in workers {
            assert_eq!(worker.await.unwrap(), None);
        }
    }
}
