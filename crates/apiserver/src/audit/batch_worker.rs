//! Delivers batches of events to a backend in the background.

use super::batch::{Batch, Batching, Throttle};
use super::sink::Sink;
use bytes::Bytes;
use env::io::RealInstant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};

/// Maximum number of concurrent batches.
const MAX_CONCURRENT: usize = 8;

/// Delivers events to the sink until `stopping` turns true and none are left.
pub(super) fn start(
    options: Batching,
    stopping: watch::Receiver<bool>,
) -> (Batch, impl FnOnce(Arc<Sink>) -> tokio::task::JoinHandle<()>) {
    let (batch, events, bytes) = Batch::new(options.buffer);
    let work = move |sink: Arc<Sink>| {
        let bucket = options.throttle.map(Bucket::new);
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
        tokio::spawn(Worker { options, events, stopping, bytes, bucket, permits, sink }.run())
    };
    (batch, work)
}

struct Worker {
    options: Batching,
    events: mpsc::Receiver<Bytes>,
    stopping: watch::Receiver<bool>,
    bytes: Arc<AtomicUsize>,
    bucket: Option<Bucket>,
    permits: Arc<Semaphore>,
    sink: Arc<Sink>,
}

impl Worker {
    async fn run(mut self) {
        while let Some(batch) = self.gather().await {
            if let Some(bucket) = &mut self.bucket {
                bucket.take(&mut self.stopping).await;
            }
            for part in self.sink.split(batch) {
                self.deliver(part).await;
            }
        }
        // the semaphore is never closed
        let _ = self.permits.acquire_many(MAX_CONCURRENT as u32).await;
    }

    /// The next batch; `None` at the end.
    async fn gather(&mut self) -> Option<Vec<Bytes>> {
        let first = loop {
            tokio::select! {
                event = self.events.recv() => break event?,
                // deliver the rest, and accept no more
                stopped = self.stopping.wait_for(|stopping| *stopping), if !self.events.is_closed() => {
                    drop(stopped);
                    self.events.close();
                }
            }
        };
        let mut batch = vec![first];
        let deadline = RealInstant::after(self.options.max_wait);
        while batch.len() < self.options.max_size {
            if let Ok(event) = self.events.try_recv() {
                batch.push(event);
                continue;
            }
            if self.options.max_wait.is_zero() {
                break;
            }
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => batch.push(event),
                    None => break,
                },
                () = deadline.sleep() => break,
                stopped = self.stopping.wait_for(|stopping| *stopping), if !self.events.is_closed() => {
                    drop(stopped);
                    self.events.close();
                }
            }
        }
        Some(batch)
    }

    async fn deliver(&self, events: Vec<Bytes>) {
        let size: usize = events.iter().map(Bytes::len).sum();
        let bytes = self.bytes.clone();
        let delivered = Sink::deliver(&self.sink, events);
        match delivered {
            env::MaybeReady::Now(_) => {
                bytes.fetch_sub(size, Ordering::Relaxed);
                // a file never waits: yield to other tasks
                tokio::task::yield_now().await;
            }
            env::MaybeReady::Later(delivery) => {
                let permit = self.permits.clone().acquire_owned().await;
                tokio::spawn(async move {
                    delivery.await;
                    bytes.fetch_sub(size, Ordering::Relaxed);
                    drop(permit);
                });
            }
        }
    }
}

/// A token bucket; a batch takes one token.
struct Bucket {
    throttle: Throttle,
    tokens: f64,
    filled: RealInstant,
}

impl Bucket {
    fn new(throttle: Throttle) -> Self {
        Bucket { throttle, tokens: f64::from(throttle.burst), filled: RealInstant::now() }
    }

    async fn take(&mut self, stopping: &mut watch::Receiver<bool>) {
        loop {
            let now = RealInstant::now();
            let come = now.since(self.filled).as_secs_f64() * self.throttle.per_second;
            self.tokens = (self.tokens + come).min(f64::from(self.throttle.burst));
            self.filled = now;
            if self.tokens >= 1.0 {
                self.tokens -= 1.0;
                return;
            }
            let missing = (1.0 - self.tokens) / self.throttle.per_second;
            let pause = Duration::try_from_secs_f64(missing).unwrap_or(Duration::from_secs(3600));
            tokio::select! {
                () = env::io::sleep(pause.max(Duration::from_millis(1))) => {}
                // stopping, or the sender is gone
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
        }
    }
}
