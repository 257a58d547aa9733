//! Summaries of nodes, requested when they are needed and kept for a while.
//!
//! An agent measures CPU between two requests. If the last request was long ago, its rate would be that of a long time:
//! then it gets two, a second apart. An agent that reports rates without the counters behind them has no such time: a
//! simulated one, whose clock may stand still meanwhile.

use super::summary::Summary;
use crate::handle::Service;
use env::World;
use env::io::RealInstant;
use futures_util::{StreamExt as _, stream};
use outbound::{LogThrottle, SingleFlight, TtlCache};
use parking_lot::Mutex;
use rest::Api;
use schema::Value;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How long a summary is kept.
pub const TTL: Duration = Duration::from_secs(15);
/// How long it is kept that a node does not answer.
const FAILURE_TTL: Duration = Duration::from_secs(5);
/// The time for an agent to answer.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The age of the last request from which on its rate is that of too long a time.
const STALE: Duration = Duration::from_secs(60);
/// The time between the two requests to an agent that had none for long.
const SAMPLE: Duration = Duration::from_secs(1);
/// The most requests at the same time.
const CONCURRENCY: usize = 64;
/// The largest summary.
const MAX_BYTES: usize = 16 << 20;
/// The most nodes, and the bytes of their summaries, that are kept.
const MAX_NODES: usize = 10_000;
const MAX_KEPT: usize = 256 << 20;

const PATH: &str = "/stats/summary?only_cpu_and_memory=true";

/// A summary, and the time over which CPU was measured.
#[derive(Debug)]
pub struct Sample {
    pub summary: Summary,
    pub window: Duration,
}

/// `None` for a node that does not answer.
type MaybeSample = Option<Arc<Sample>>;

/// See the module.
pub struct Collector {
    service: OnceLock<Weak<Service>>,
    samples: TtlCache<MaybeSample>,
    requests: SingleFlight<MaybeSample>,
    last_requests: Mutex<HashMap<String, RealInstant>>,
    failures: LogThrottle,
}

impl Collector {
    pub fn new(world: &World) -> Self {
        Collector {
            service: OnceLock::new(),
            samples: TtlCache::new(world.clone(), MAX_NODES, MAX_KEPT),
            requests: SingleFlight::default(),
            last_requests: Mutex::default(),
            failures: LogThrottle::default(),
        }
    }

    /// Reaches agents through this service from now on.
    pub(crate) fn connect(&self, service: &Arc<Service>) {
        // a server connects once
        let _ = self.service.set(Arc::downgrade(service));
    }

    fn service(&self) -> Option<Arc<Service>> {
        self.service.get().and_then(Weak::upgrade)
    }

    /// The objects that metrics are of; `None` while the server starts.
    pub(super) fn with_api<T>(&self, read: impl FnOnce(&Api) -> T) -> Option<T> {
        self.service().map(|service| read(&service.api))
    }

    /// The samples of these nodes; those that do not answer are left out.
    pub(super) async fn samples(&self, nodes: Vec<Value>) -> HashMap<String, Arc<Sample>> {
        let sample = |node: Value| async move {
            let name = node.text(&["metadata", "name"]).to_owned();
            Some((name, self.sample(node).await?))
        };
        let samples = stream::iter(nodes).map(sample).buffer_unordered(CONCURRENCY);
        samples.filter_map(std::future::ready).collect().await
    }

    async fn sample(&self, node: Value) -> MaybeSample {
        let name = node.text(&["metadata", "name"]);
        // a node of the same name may be another machine
        let key = self.samples.key([name.as_bytes(), node.text(&["metadata", "uid"]).as_bytes()]);
        if let Some(known) = self.samples.get(&key) {
            return known;
        }
        let request = async {
            let sample = match self.request(&node).await {
                Ok(sample) => Some(Arc::new(sample)),
                Err(why) => {
                    if let Some(suppressed) = self.failures.now() {
                        tracing::warn!(node = name, why, suppressed, "the usage of a node is not known");
                    }
                    None
                }
            };
            let (bytes, ttl) = match &sample {
                Some(sample) => (1024 * (1 + sample.summary.pods.len()), TTL),
                None => (64, FAILURE_TTL),
            };
            self.samples.put(key, sample.clone(), bytes, ttl);
            sample
        };
        self.requests.ask(key, request).await
    }

    /// Requests the summary of an agent, twice if the last request was long ago.
    async fn request(&self, node: &Value) -> Result<Sample, String> {
        let name = node.text(&["metadata", "name"]).to_owned();
        let now = RealInstant::now();
        let last = self.last_requests.lock().insert(name.clone(), now);
        let age = last.map(|it| now.since(it)).filter(|it| *it <= STALE);
        let deadline = RealInstant::after(TIMEOUT);
        let fetch =
            async || deadline.timeout(self.fetch(node)).await.map_err(|_| "it does not answer in time")?;
        let summary = fetch().await?;
        match age {
            _ if !summary.is_counted => Ok(Sample { summary, window: SAMPLE }),
            Some(window) => Ok(Sample { summary, window }),
            None => {
                env::io::sleep(SAMPLE).await;
                self.last_requests.lock().insert(name, RealInstant::now());
                Ok(Sample { summary: fetch().await?, window: SAMPLE })
            }
        }
    }

    async fn fetch(&self, node: &Value) -> Result<Summary, String> {
        let service = self.service().ok_or("the server stops")?;
        let text = service.node_proxy.fetch(node, PATH, MAX_BYTES).await.map_err(|why| why.message)?;
        Summary::parse(&text).ok_or_else(|| "its summary cannot be read".to_owned())
    }

    /// Forgets nodes that are gone.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.last_requests.lock().retain(|name, _| is_there(name));
    }
}
