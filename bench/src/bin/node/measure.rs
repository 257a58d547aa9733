//! The measurement of an agent through the API.

use super::alone::Alone;
use anyhow::{Context, ensure};
use api::core::v1::{Namespace, Pod};
use api::meta::v1::DeleteOptions;
use api::{Resource, from_json};
use bench::print_line;
use client::{Api, Client, Informer, InformerFactory};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

const NAMESPACE: &str = "bench-node";
/// The longest wait for pods.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The numbers of pods, and the time at rest.
pub struct Plan {
    pub single: usize,
    pub burst: usize,
    pub resting: usize,
    pub rest: Duration,
}

/// CPU time so far, and bytes of memory.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub cpu: Duration,
    pub memory: u64,
    pub all: Option<AllUsage>,
}

/// CPU time of the agent, the runtime, their helpers and the pods, and the memory of all processes of the agent's
/// program.
#[derive(Debug, Clone, Copy)]
pub struct AllUsage {
    pub cpu: Duration,
    pub memory: u64,
}

/// The CPU time between usages.
#[derive(Default)]
struct Spent {
    agent: Duration,
    all: Option<Duration>,
}

impl Spent {
    fn add(&mut self, before: &Usage, after: &Usage) {
        self.agent += after.cpu - before.cpu;
        if let (Some(after), Some(before)) = (after.all, before.all) {
            *self.all.get_or_insert_default() += after.cpu - before.cpu;
        }
    }

    /// The time for each pod, in words.
    fn per_pod(&self, pods: usize) -> anyhow::Result<String> {
        let pods = u32::try_from(pods.max(1))?;
        let all = self.all.map(|all| format!(", of everything {:.1?}", all / pods)).unwrap_or_default();
        Ok(format!("{:.1?}{all}", self.agent / pods))
    }
}

/// Reads the usage of the agent.
pub struct Agent {
    read: Box<dyn Fn() -> anyhow::Result<Usage> + Send + Sync>,
}

impl Agent {
    pub fn new(read: impl Fn() -> anyhow::Result<Usage> + Send + Sync + 'static) -> Self {
        Agent { read: Box::new(read) }
    }

    pub fn usage(&self) -> anyhow::Result<Usage> {
        (self.read)()
    }
}

/// See the module.
pub struct Measurement {
    pub client: Client,
    pub node: String,
    pub image: String,
    pub agent: Agent,
    /// The agent's runtime, for pods without the agent.
    pub alone: Option<Alone>,
}

/// Times at which pods were seen running first, and the pods that exist.
struct Observer {
    running: Arc<Mutex<HashMap<String, Instant>>>,
    /// The numbers of pods that run, and of pods that exist.
    counts: watch::Receiver<(usize, usize)>,
    _factory: InformerFactory,
}

impl Observer {
    async fn new(client: &Client) -> Self {
        let factory = InformerFactory::new(client.clone());
        let pods: Informer<Pod> = factory.informer_of(NAMESPACE, "");
        let running: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
        let (sender, counts) = watch::channel((0, 0));
        let (seen, listed) = (running.clone(), pods.clone());
        pods.listen(move |change| {
            let pod = change.object();
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if change.is_deletion() {
                seen.remove(pod.name());
            } else if pod.status.phase == "Running" {
                seen.entry(pod.name().to_owned()).or_insert_with(Instant::now);
            }
            sender.send_replace((seen.len(), listed.len()));
        });
        pods.synced().await;
        Observer { running, counts, _factory: factory }
    }

    fn started(&self, name: &str) -> Option<Instant> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    async fn wait(&mut self, what: &str, is_done: impl Fn((usize, usize)) -> bool) -> anyhow::Result<()> {
        let waited = tokio::time::timeout(TIMEOUT, self.counts.wait_for(|it| is_done(*it))).await;
        ensure!(waited.is_ok_and(|it| it.is_ok()), "{what}: not within {TIMEOUT:?}");
        Ok(())
    }
}

impl Measurement {
    pub async fn run(&self, plan: &Plan) -> anyhow::Result<()> {
        let namespaces = Api::<Namespace>::all(&self.client);
        let namespace = json!({"metadata": {"name": NAMESPACE}}).to_string();
        match namespaces.create(&from_json(namespace.as_bytes())?).await {
            Err(why) if !why.is_already_exists() => return Err(anyhow::anyhow!("{}", why.message())),
            _ => {}
        }
        let mut observer = Observer::new(&self.client).await;
        self.rest(plan, "no pods").await?;
        self.start_single(plan.single, &mut observer).await?;
        self.start_at_once(plan.burst, &mut observer, "burst").await?;
        let more = plan.resting.saturating_sub(plan.burst);
        self.start_at_once(more, &mut observer, "more").await?;
        self.rest(plan, &format!("{} pods", plan.resting)).await?;
        self.delete_all(&mut observer, plan.resting).await
    }

    async fn rest(&self, plan: &Plan, what: &str) -> anyhow::Result<()> {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = self.agent.usage()?;
        tokio::time::sleep(plan.rest).await;
        let after = self.agent.usage()?;
        let share = (after.cpu - before.cpu).as_secs_f64() / plan.rest.as_secs_f64() * 100.0;
        let all =
            after.all.map(|it| format!("; all processes of its program {:.1} MB", it.memory as f64 / 1e6));
        print_line!(
            "at rest, {what}: {:.1} MB, {share:.2} % of a core{}",
            after.memory as f64 / 1e6,
            all.unwrap_or_default()
        );
        Ok(())
    }

    fn pod(&self, name: &str) -> anyhow::Result<Pod> {
        let pod = json!({
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "nodeName": self.node,
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": self.image, "imagePullPolicy": "IfNotPresent"}],
            },
        });
        Ok(from_json(pod.to_string().as_bytes())?)
    }

    async fn create(&self, name: &str) -> anyhow::Result<()> {
        let created = Api::<Pod>::namespaced(&self.client, NAMESPACE).create(&self.pod(name)?).await;
        created.map(drop).map_err(|why| anyhow::anyhow!("{name}: {}", why.message()))
    }

    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        let pods = Api::<Pod>::namespaced(&self.client, NAMESPACE);
        pods.delete(name, &DeleteOptions::default())
            .await
            .map_err(|why| anyhow::anyhow!("{name}: {}", why.message()))
    }

    async fn start_single(&self, count: usize, observer: &mut Observer) -> anyhow::Result<()> {
        let (mut times, mut alone, mut spent) = (Vec::new(), Vec::new(), Spent::default());
        for nth in 0..count {
            alone.extend(self.start_alone(1).await?);
            let before = self.agent.usage()?;
            let (name, begin) = (format!("single-{nth}"), Instant::now());
            self.create(&name).await?;
            observer.wait(&name, |(running, _)| running == 1).await?;
            times.push(observer.started(&name).context("the pod is gone")? - begin);
            self.delete(&name).await?;
            observer.wait(&name, |(_, existing)| existing == 0).await?;
            spent.add(&before, &self.agent.usage()?);
        }
        let each = spent.per_pod(count)?;
        print_line!("one by one: {}; agent CPU per pod started and deleted {each}", Spread::of(times));
        if self.alone.is_some() {
            print_line!("the runtime alone, in turns with it: {}", Spread::of(alone));
        }
        Ok(())
    }

    /// Pods of the runtime alone are started at once before and after the agent's.
    async fn start_at_once(&self, count: usize, observer: &mut Observer, prefix: &str) -> anyhow::Result<()> {
        let present = observer.counts.borrow().0;
        let alone_before = self.start_alone(count).await?;
        let (before, begin) = (self.agent.usage()?, Instant::now());
        let names: Vec<String> = (0..count).map(|nth| format!("{prefix}-{nth}")).collect();
        for name in &names {
            self.create(name).await?;
        }
        observer.wait(prefix, |(running, _)| running == present + count).await?;
        let times = names.iter().filter_map(|it| Some(observer.started(it)? - begin)).collect();
        // events and last statuses
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut spent = Spent::default();
        spent.add(&before, &self.agent.usage()?);
        let each = spent.per_pod(count)?;
        print_line!("{count} at once, beside {present}: {}; agent CPU per pod {each}", Spread::of(times));
        if self.alone.is_some() {
            let after = self.start_alone(count).await?;
            let [before, after] = [alone_before, after].map(Spread::of);
            print_line!("the runtime alone, before: {before}; after: {after}");
        }
        Ok(())
    }

    async fn start_alone(&self, count: usize) -> anyhow::Result<Vec<Duration>> {
        match &self.alone {
            Some(alone) => alone.start_at_once(count).await,
            None => Ok(Vec::new()),
        }
    }

    async fn delete_all(&self, observer: &mut Observer, count: usize) -> anyhow::Result<()> {
        let (before, begin) = (self.agent.usage()?, Instant::now());
        let names: Vec<String> =
            observer.running.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for name in &names {
            self.delete(name).await?;
        }
        observer.wait("the deletion", |(_, existing)| existing == 0).await?;
        let mut spent = Spent::default();
        spent.add(&before, &self.agent.usage()?);
        let each = spent.per_pod(count)?;
        print_line!("{count} deleted in {:.2?}; agent CPU per pod {each}", begin.elapsed());
        Ok(())
    }
}

/// Times in short.
pub struct Spread(Vec<Duration>);

impl Spread {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        Spread(times)
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |share: usize| self.0.get((self.0.len() * share / 100).min(self.0.len().saturating_sub(1)));
        match (at(0), at(50), at(99)) {
            (Some(first), Some(half), Some(last)) => {
                let [half, last, first] = [half, last, first].map(Duration::as_millis);
                write!(f, "p50 {half} ms, p99 {last} ms, first {first} ms")
            }
            _ => f.write_str("none"),
        }
    }
}
