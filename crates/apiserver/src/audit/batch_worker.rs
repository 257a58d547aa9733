//! Delivers batches of events to a backend in the background.

use super::batch::{Batch, Batching, Throttle};
use super::sink::Sink;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;

/// How many lists may be under way to a receiver at a time.
const UNDER_WAY: usize = 8;

/// Hands events on to the sink until `stopping` turns true and none are left.
pub(super) fn start(
    options: Batching,
    stopping: watch::Receiver<bool>,
) -> (Batch, impl FnOnce(Arc<Sink>) -> tokio::task::JoinHandle<()>) {
    let (batch, events, bytes) = Batch::new(options.buffer);
    let work = move |sink: Arc<Sink>| {
        let bucket = options.throttle.map(Bucket::new);
        let places = Arc::new(Semaphore::new(UNDER_WAY));
        tokio::spawn(Worker { options, events, stopping, bytes, bucket, places, sink }.run())
    };
    (batch, work)
}

struct Worker {
    options: Batching,
    events: mpsc::Receiver<Bytes>,
    stopping: watch::Receiver<bool>,
    bytes: Arc<AtomicUsize>,
    bucket: Option<Bucket>,
    places: Arc<Semaphore>,
    sink: Arc<Sink>,
}

impl Worker {
    async fn run(mut self) {
        while let Some(batch) = self.gather().await {
            if let Some(bucket) = &mut self.bucket {
                bucket.take(&mut self.stopping).await;
            }
            for part in self.sink.split(batch) {
                self.hand_on(part).await;
            }
        }
        // an error would mean a closed semaphore, which nobody closes
        let _ = self.places.acquire_many(UNDER_WAY as u32).await;
    }

    /// The next events, or nothing at the end.
    async fn gather(&mut self) -> Option<Vec<Bytes>> {
        let first = loop {
            tokio::select! {
                event = self.events.recv() => break event?,
                // what is there is still given out, and nothing more is taken
                stopped = self.stopping.wait_for(|stopping| *stopping), if !self.events.is_closed() => {
                    drop(stopped);
                    self.events.close();
                }
            }
        };
        let mut batch = vec![first];
        let deadline = Instant::now() + self.options.max_wait;
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
                () = tokio::time::sleep_until(deadline) => break,
                stopped = self.stopping.wait_for(|stopping| *stopping), if !self.events.is_closed() => {
                    drop(stopped);
                    self.events.close();
                }
            }
        }
        Some(batch)
    }

    async fn hand_on(&self, events: Vec<Bytes>) {
        let size: usize = events.iter().map(Bytes::len).sum();
        let bytes = self.bytes.clone();
        let delivered = Sink::deliver(&self.sink, events);
        match delivered {
            env::MaybeReady::Now(_) => {
                bytes.fetch_sub(size, Ordering::Relaxed);
                // a file takes events without ever waiting: others must have their turn
                tokio::task::yield_now().await;
            }
            env::MaybeReady::Later(delivery) => {
                let place = self.places.clone().acquire_owned().await;
                tokio::spawn(async move {
                    delivery.await;
                    bytes.fetch_sub(size, Ordering::Relaxed);
                    drop(place);
                });
            }
        }
    }
}

/// Tokens that come with time; a list takes one.
struct Bucket {
    throttle: Throttle,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(throttle: Throttle) -> Self {
        Bucket { throttle, tokens: f64::from(throttle.burst), filled: Instant::now() }
    }

    async fn take(&mut self, stopping: &mut watch::Receiver<bool>) {
        loop {
            let now = Instant::now();
            let come = (now - self.filled).as_secs_f64() * self.throttle.per_second;
            self.tokens = (self.tokens + come).min(f64::from(self.throttle.burst));
            self.filled = now;
            if self.tokens >= 1.0 {
                self.tokens -= 1.0;
                return;
            }
            let missing = (1.0 - self.tokens) / self.throttle.per_second;
            let pause = Duration::try_from_secs_f64(missing).unwrap_or(Duration::from_secs(3600));
            tokio::select! {
                () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => {}
                // told to stop, or nobody is left to tell
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
        }
    }
}
