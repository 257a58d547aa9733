//! The queue of writes between callers and the committer.
//!
//! Two lanes: urgent writes (heartbeats of nodes) leave before all others and have their own permits. They take at
//! most half of a batch while others wait. Heartbeats that arrive in a row linger for a moment (`arrivals.rs`), so
//! that a thousand nodes do not cost a sync each; any other write takes them along at once.
//!
//! Bounded: a caller beyond the bound waits asynchronously for a permit. The committer blocks its own thread. Once
//! the queue is closed, nothing enters; queued writes are still delivered. One lock, held only to push and pop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use env::World;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::arrivals::Arrivals;
use crate::{Op, Priority, Revision, Snapshot, StoreError, Write};

/// Writes that may be queued at once, in each lane.
const PLACES: usize = 4096;
/// A batch ends at this many writes or, once it holds one, before this many bytes.
const BATCH_WRITES: usize = 512;
const BATCH_BYTES: usize = 16 << 20;
/// How long heartbeats in a row wait for others: negligible for a node, whose deadline is many seconds.
const LINGER: Duration = Duration::from_millis(100);
/// The number of heartbeats that do not wait for more.
const LINGERING_WRITES: usize = 64;

pub(crate) type Responder = oneshot::Sender<Result<Revision, StoreError>>;
pub(crate) type SnapshotResponder = oneshot::Sender<Result<Snapshot, StoreError>>;

/// A queued write, and where to send its result.
pub(crate) struct Request {
    pub write: Write,
    pub answer: Responder,
    /// Its permit, returned when the request is answered.
    pub place: OwnedSemaphorePermit,
}

pub(crate) struct Queue {
    places: Arc<Semaphore>,
    urgent_places: Arc<Semaphore>,
    inside: Mutex<Inner>,
    ready: Condvar,
    world: World,
}

#[derive(Default)]
struct Inner {
    urgent: VecDeque<Request>,
    requests: VecDeque<Request>,
    ticks: Vec<oneshot::Sender<()>>,
    probes: Vec<oneshot::Sender<()>>,
    snapshots: Vec<SnapshotResponder>,
    closed: bool,
    /// A write other than a heartbeat is queued.
    hurries: bool,
    arrivals: Arrivals,
}

/// The requests that the committer takes at once.
#[derive(Default)]
pub(crate) struct QueueBatch {
    pub requests: Vec<Request>,
    pub ticks: Vec<oneshot::Sender<()>>,
    /// Probes of whether the committer makes progress.
    pub probes: Vec<oneshot::Sender<()>>,
    pub snapshots: Vec<SnapshotResponder>,
    /// The queue is closed and empty now.
    pub last: bool,
}

impl Queue {
    pub(crate) fn new(world: World) -> Self {
        let places = || Arc::new(Semaphore::new(PLACES));
        let (inside, ready) = (Mutex::default(), Condvar::new());
        Self { places: places(), urgent_places: places(), inside, ready, world }
    }

    /// Queues a write, waiting for a permit.
    pub(crate) async fn push(
        &self,
        write: Write,
    ) -> Result<oneshot::Receiver<Result<Revision, StoreError>>, StoreError> {
        let (is_normal, is_heartbeat) =
            (write.priority == Priority::Normal, write.priority == Priority::Heartbeat);
        let places = if is_normal { &self.places } else { &self.urgent_places };
        let place = places.clone().acquire_owned().await.map_err(|_| StoreError::closing())?;
        let (answer, answered) = oneshot::channel();
        let mut inside = self.inside.lock();
        if inside.closed {
            return Err(StoreError::closing());
        }
        if is_heartbeat {
            inside.arrivals.note(&write.key, self.world.elapsed());
        }
        let lane = if is_normal { &mut inside.requests } else { &mut inside.urgent };
        lane.push_back(Request { write, answer, place });
        inside.hurries |= !is_heartbeat;
        let wakes = !inside.lingers() || inside.waiting() == 1;
        drop(inside);
        if wakes {
            self.ready.notify_one();
        }
        Ok(answered)
    }

    /// Requests a tick; `None` once the queue is closed.
    pub(crate) fn tick(&self) -> Option<oneshot::Receiver<()>> {
        let (done, is_done) = oneshot::channel();
        let mut inside = self.inside.lock();
        if inside.closed {
            return None;
        }
        inside.ticks.push(done);
        drop(inside);
        self.ready.notify_one();
        Some(is_done)
    }

    /// Requests a probe; `None` once the queue is closed.
    pub(crate) fn probe(&self) -> Option<oneshot::Receiver<()>> {
        let (here, reached) = oneshot::channel();
        let mut inside = self.inside.lock();
        if inside.closed {
            return None;
        }
        // drop cancelled probes, so that there are never more than current waiters
        inside.probes.retain(|waiting| !waiting.is_closed());
        inside.probes.push(here);
        drop(inside);
        self.ready.notify_one();
        Some(reached)
    }

    /// Requests a snapshot; `None` once the queue is closed.
    pub(crate) fn snapshot(&self) -> Option<oneshot::Receiver<Result<Snapshot, StoreError>>> {
        let (answer, answered) = oneshot::channel();
        let mut inside = self.inside.lock();
        if inside.closed {
            return None;
        }
        inside.snapshots.push(answer);
        drop(inside);
        self.ready.notify_one();
        Some(answered)
    }

    /// Blocks until a request arrives, the queue is closed, or `wait` has passed.
    pub(crate) fn take(&self, wait: Option<Duration>) -> QueueBatch {
        let mut inside = self.inside.lock();
        let idle = inside.waiting() == 0
            && inside.ticks.is_empty()
            && inside.probes.is_empty()
            && inside.snapshots.is_empty();
        if idle && !inside.closed {
            match wait {
                Some(wait) => {
                    self.ready.wait_for(&mut inside, wait);
                }
                None => self.ready.wait(&mut inside),
            }
        }
        if inside.lingers() && inside.arrivals.are_in_a_row(self.world.elapsed()) {
            self.ready.wait_while_for(&mut inside, |inside| inside.lingers(), LINGER);
            let heartbeats = inside.urgent.len();
            inside.arrivals.note_company(heartbeats);
        }
        inside.take()
    }

    /// What is there now.
    pub(crate) fn take_now(&self) -> QueueBatch {
        self.inside.lock().take()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.inside.lock().waiting()
    }

    /// Closes the queue for new writes.
    pub(crate) fn close(&self) {
        self.places.close();
        self.urgent_places.close();
        self.inside.lock().closed = true;
        self.ready.notify_one();
    }

    /// Closes the queue and drops its requests: their callers get an error.
    pub(crate) fn abandon(&self) {
        self.close();
        let mut inside = self.inside.lock();
        let Inner { urgent, requests, ticks, probes, snapshots, .. } = &mut *inside;
        let writes = (std::mem::take(urgent), std::mem::take(requests));
        let rest = (std::mem::take(ticks), std::mem::take(probes), std::mem::take(snapshots));
        drop(inside);
        drop((writes, rest));
    }
}

impl Inner {
    /// The next batch.
    fn take(&mut self) -> QueueBatch {
        let mut taken = QueueBatch::default();
        let Inner { urgent, requests, .. } = &mut *self;
        let share = if requests.is_empty() { 1 } else { 2 };
        let mut bytes = 0;
        for (lane, share) in [(urgent, share), (requests, 1)] {
            while let Some(next) = lane.front() {
                let with_next = bytes + size(&next.write);
                let full = taken.requests.len() >= BATCH_WRITES / share || with_next > BATCH_BYTES / share;
                if full && !taken.requests.is_empty() {
                    break;
                }
                bytes = with_next;
                taken.requests.extend(lane.pop_front());
            }
        }
        taken.ticks = std::mem::take(&mut self.ticks);
        taken.probes = std::mem::take(&mut self.probes);
        taken.snapshots = std::mem::take(&mut self.snapshots);
        self.hurries = self.waiting() > 0;
        taken.last = self.closed && self.waiting() == 0;
        taken
    }

    fn waiting(&self) -> usize {
        self.urgent.len() + self.requests.len()
    }

    /// Whether only a few heartbeats are queued.
    fn lingers(&self) -> bool {
        let has_requests =
            self.closed || !self.ticks.is_empty() || !self.probes.is_empty() || !self.snapshots.is_empty();
        !has_requests && !self.hurries && (1..LINGERING_WRITES).contains(&self.urgent.len())
    }
}

fn size(write: &Write) -> usize {
    let value = match &write.op {
        Op::Put { value, .. } => value.len(),
        Op::Delete => 0,
    };
    write.key.len() + value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expect;
    use env::Simulated;

    async fn push(queue: &Queue, bytes: usize) {
        queue.push(Write::put("k", Expect::Any, vec![0; bytes])).await.unwrap();
    }

    #[tokio::test]
    async fn a_batch_is_bounded_by_count_and_by_bytes() {
        let queue = Queue::new(Simulated::new(0, 0));
        for _ in 0..BATCH_WRITES + 1 {
            push(&queue, 1).await;
        }
        assert_eq!(queue.take(None).requests.len(), BATCH_WRITES);
        assert_eq!(queue.take(None).requests.len(), 1);
        for _ in 0..3 {
            push(&queue, BATCH_BYTES / 2 - 1).await;
        }
        assert_eq!(queue.take(None).requests.len(), 2);
        assert_eq!(queue.take(None).requests.len(), 1);
        push(&queue, BATCH_BYTES + 1).await;
        assert_eq!(queue.take(None).requests.len(), 1, "one write always fits");
    }

    fn keys(taken: &QueueBatch) -> Vec<&str> {
        taken.requests.iter().map(|request| &*request.write.key).collect()
    }

    #[tokio::test]
    async fn urgent_writes_leave_first_and_leave_room() {
        let queue = Queue::new(Simulated::new(0, 0));
        for _ in 0..PLACES {
            push(&queue, 0).await;
        }
        let urgent = |key: &str| queue.push(Write::put(key, Expect::Any, "").with_priority(Priority::Urgent));
        urgent("first").await.unwrap();
        urgent("second").await.unwrap();
        let taken = queue.take(None);
        assert_eq!(keys(&taken)[..3], ["first", "second", "k"]);
        assert_eq!(taken.requests.len(), BATCH_WRITES);
        for _ in 0..BATCH_WRITES {
            urgent("u").await.unwrap();
        }
        let taken = queue.take(None);
        assert_eq!(keys(&taken).iter().filter(|key| **key == "u").count(), BATCH_WRITES / 2);
        assert_eq!(taken.requests.len(), BATCH_WRITES, "the others go on");
    }

    #[tokio::test]
    async fn heartbeats_alone_wait_for_company() {
        let queue = Queue::new(Simulated::new(0, 0));
        let heartbeat =
            |key: &str| queue.push(Write::put(key, Expect::Any, "").with_priority(Priority::Heartbeat));
        let in_a_row = || queue.inside.lock().arrivals.are_in_a_row(queue.world.elapsed());
        heartbeat("a").await.unwrap();
        assert!(queue.inside.lock().lingers() && !in_a_row(), "one alone does not");
        for key in ["b", "c", "d"] {
            heartbeat(key).await.unwrap();
        }
        assert!(queue.inside.lock().lingers() && in_a_row());
        assert_eq!(keys(&queue.take(None)), ["a", "b", "c", "d"], "but not for ever");
        heartbeat("c").await.unwrap();
        push(&queue, 0).await;
        assert!(!queue.inside.lock().lingers(), "others take them along");
        assert_eq!(keys(&queue.take(None)), ["c", "k"]);
        for _ in 0..LINGERING_WRITES {
            let waiting = queue.waiting();
            assert!(waiting == 0 || queue.inside.lock().lingers());
            heartbeat("d").await.unwrap();
        }
        assert!(!queue.inside.lock().lingers(), "so many are enough");
        queue.take(None);
        heartbeat("e").await.unwrap();
        let _probe = queue.probe();
        assert!(!queue.inside.lock().lingers(), "who asks is answered at once");
    }

    #[tokio::test]
    async fn beyond_the_bound_callers_wait() {
        let queue = Queue::new(Simulated::new(0, 0));
        for _ in 0..PLACES {
            push(&queue, 0).await;
        }
        let one_more = push(&queue, 0);
        tokio::pin!(one_more);
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(one_more.as_mut().poll(cx))).await;
        assert!(first.is_pending());
        drop(queue.take(None));
        one_more.await;
        assert_eq!(queue.waiting(), PLACES - BATCH_WRITES + 1);
    }

    #[tokio::test]
    async fn queued_writes_are_drained_at_close() {
        let queue = Queue::new(Simulated::new(0, 0));
        push(&queue, 0).await;
        queue.close();
        assert!(queue.push(Write::delete("k", Expect::Any)).await.is_err());
        assert!(queue.tick().is_none());
        let taken = queue.take(None);
        assert_eq!((taken.requests.len(), taken.last), (1, true));
    }
}
