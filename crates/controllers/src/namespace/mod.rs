//! The namespace controller: deletes the content of terminating namespaces, then finalizes them.
//!
//! Invariants: discovery runs after the namespace was seen terminating, so that the resources of all its objects are
//! known. A namespace is finalized only when all its content is gone; its conditions say what it waits for.

mod conditions;
mod content;

use crate::Context;
use crate::metadata_informers::Listener;
use api::Resource as _;
use api::core::v1::Namespace;
use api::meta::v1::ObjectMeta;
use client::discovery::{ApiResources, Discovery, Resource};
use client::{Action, Api, Failure, Key, Queue, Reconcile, run, unless};
use conditions::DeletionReport;
use env::Upkeep;
use env::io::RealInstant;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The limit of attempts of one write after conflicts.
const TRIES: usize = 5;
/// How long to wait for more deletions after one.
const SOON: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub workers: usize,
    /// The interval at which all terminating namespaces are reconciled.
    pub sync_period: Duration,
    /// How long to wait after a namespace was deleted, so that all servers refuse new objects in it.
    pub settle: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { workers: 10, sync_period: Duration::from_secs(300), settle: Duration::from_secs(5) }
    }
}

struct Namespaces {
    context: Context,
    discovery: Arc<Discovery>,
    terminating: TerminatingSince,
}

/// When each namespace was first seen terminating.
type TerminatingSince = Arc<Mutex<HashMap<String, RealInstant>>>;

/// Queues a terminating namespace when an object in it is gone.
struct ContentListener {
    terminating: TerminatingSince,
    queue: Queue<Key>,
}

impl Listener for ContentListener {
    fn put(&self, _: &Arc<Resource>, _: &ObjectMeta) {}

    fn gone(&self, _: &Arc<Resource>, object: &ObjectMeta) {
        if self.terminating.lock().contains_key(&object.namespace) {
            self.queue.add_after(Key::new("", &object.namespace), SOON);
        }
    }

    fn whole(&self, _: &Arc<Resource>, _: &HashSet<String>) {}

    fn ended(&self, _: &Arc<Resource>) {}
}

fn is_terminating(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::new(&context.world);
    let namespaces = context.informer::<Namespace>();
    let terminating = TerminatingSince::default();
    let (changed, seen, settle) = (queue.clone(), terminating.clone(), options.settle);
    namespaces.listen(move |change| {
        let name = change.key().name;
        if change.is_deletion() {
            seen.lock().remove(&name);
        } else if is_terminating(change.object()) {
            seen.lock().entry(name).or_insert_with(RealInstant::now);
            changed.add_after(change.key(), settle);
        }
    });
    let listener = ContentListener { terminating: terminating.clone(), queue: queue.clone() };
    context.metadata_informers().listen(Arc::new(listener));
    namespaces.synced().await;
    let (resynced, period, world) = (queue.clone(), options.sync_period, context.world.clone());
    let controller = Namespaces { discovery: context.discovery(), context, terminating };
    let resync = async move {
        loop {
            env::sleep_upkeep(&world, Upkeep::check(period)).await;
            let all = namespaces.all();
            all.iter().filter(|it| is_terminating(it)).for_each(|it| resynced.add(Key::of(&**it)));
        }
    };
    tokio::select! {
        biased;
        () = resync => {}
        () = run::run(Arc::new(controller), queue, options.workers) => {}
    }
}

impl Reconcile for Namespaces {
    type Key = Key;

    fn name(&self) -> &'static str {
        "namespace"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let api: Api<Namespace> = Api::all(&self.context.client);
        // the informer may show an earlier namespace of this name: the content of a new one must stay
        let Some(namespace) = api.get_opt(&key.name).await? else { return Ok(Action::AwaitChange) };
        if !is_terminating(&namespace) {
            return Ok(Action::AwaitChange);
        }
        let Some(namespace) = set_terminating(&api, namespace).await? else {
            return Ok(Action::AwaitChange);
        };
        if namespace.spec.finalizers.is_empty() {
            return Ok(Action::AwaitChange);
        }
        let (report, served) = self.delete_content(&key.name).await;
        self.update_conditions(&api, &namespace, &report).await;
        if let Some(why) = report.problem() {
            // the next attempt needs a new discovery
            self.terminating.lock().insert(key.name.clone(), RealInstant::now());
            return Err(why);
        }
        if report.seconds > 0 || served.is_none() {
            return Ok(Action::Requeue(Duration::from_secs(report.seconds / 2 + 1)));
        }
        self.finalize(&api, &namespace).await?;
        Ok(Action::AwaitChange)
    }
}

impl Namespaces {
    /// Deletes the content of a namespace. The resources are missing if discovery failed.
    async fn delete_content(&self, name: &str) -> (DeletionReport, Option<Arc<ApiResources>>) {
        let mut report = DeletionReport::default();
        let since = *self.terminating.lock().entry(name.to_owned()).or_insert_with(RealInstant::now);
        let served = match self.discovery.since(since).await {
            Ok(served) => served,
            Err(why) => {
                report.undiscovered = Some(why.message());
                return (report, None);
            }
        };
        report.add_discovery(&served);
        let client = &self.context.client;
        for resource in content::ordered(&served) {
            match content::delete_all(client, resource, name).await {
                Ok(remaining) => report.add_remaining(resource, remaining),
                Err(why) => report.refused.push(why.message()),
            }
        }
        (report, Some(served))
    }

    /// Writes the conditions. A failure is ignored: the next attempt writes them again.
    async fn update_conditions(&self, api: &Api<Namespace>, namespace: &Namespace, report: &DeletionReport) {
        let mut next = namespace.clone();
        if !conditions::update(&mut next.status.conditions, &report.conditions(), self.context.time()) {
            return;
        }
        if let Err(why) = api.replace_status(&next).await {
            tracing::debug!(namespace = namespace.name(), %why, "conditions could not be written");
        }
    }

    /// Removes the finalizer of this loop; the server deletes the namespace with the last one.
    async fn finalize(&self, api: &Api<Namespace>, namespace: &Namespace) -> Result<(), Failure> {
        let own = self.context.names.namespace_finalizer();
        let name = namespace.name();
        for attempt in 1.. {
            let Some(mut latest) = api.get_opt(name).await? else { return Ok(()) };
            if latest.uid() != namespace.uid() {
                return Ok(());
            }
            latest.spec.finalizers.retain(|it| it != own);
            let written = api.replace_subresource::<_, Namespace>(name, "finalize", &latest).await;
            match unless(404, written) {
                Err(error) if error.is(409) && attempt < TRIES => {}
                written => {
                    written?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Sets the phase to `Terminating`. `None` if the namespace is gone.
async fn set_terminating(
    api: &Api<Namespace>,
    mut namespace: Namespace,
) -> Result<Option<Namespace>, Failure> {
    for attempt in 1.. {
        if namespace.status.phase == "Terminating" {
            break;
        }
        namespace.status.phase = "Terminating".to_owned();
        match unless(404, api.replace_status(&namespace).await) {
            Err(error) if error.is(409) && attempt < TRIES => {
                let Some(latest) = api.get_opt(namespace.name()).await? else { return Ok(None) };
                if latest.uid() != namespace.uid() {
                    return Ok(None);
                }
                namespace = latest;
            }
            written => return Ok(written?),
        }
    }
    Ok(Some(namespace))
}
