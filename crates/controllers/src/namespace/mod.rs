//! A namespace that is deleted loses everything in it, and goes.
//!
//! What always holds: which resources there are is found out after the namespace was seen to be going, so that nothing
//! that was made in it before is of a kind that is not looked at. A namespace goes only when everything in it is gone;
//! its conditions say what it waits for.

mod conditions;
mod content;

use crate::Context;
use crate::monitors::{Listener, Metadata};
use client::discovery::{ApiResources, Discovery, Resource};
use client::request::send;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run, unless};
use conditions::DeletionReport;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::core::request::Request;
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a write is tried again when somebody else was faster.
const TRIES: usize = 5;
/// How long after something is gone the rest is looked at: it is seldom alone.
const SOON: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub workers: usize,
    /// How often all namespaces are looked at again.
    pub sync_period: Duration,
    /// How long a namespace is left alone after it was deleted, so that all servers have heard of it and nobody makes
    /// anything in it any more.
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
    namespaces: Informer<Namespace>,
    /// When each was first seen to be going.
    going: Arc<Mutex<HashMap<String, Instant>>>,
}

/// Something in a namespace that is going is gone: the rest may follow.
struct Emptying {
    going: Arc<Mutex<HashMap<String, Instant>>>,
    queue: Queue<Key>,
}

impl Listener for Emptying {
    fn put(&self, _: &Arc<Resource>, _: &Metadata) {}

    fn gone(&self, _: &Arc<Resource>, object: &Metadata) {
        if self.going.lock().contains_key(&object.namespace) {
            self.queue.add_after(Key::new("", &object.namespace), SOON);
        }
    }

    fn whole(&self, _: &Arc<Resource>, _: &HashSet<String>) {}

    fn ended(&self, _: &Arc<Resource>) {}
}

fn is_going(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::default();
    let namespaces = context.informer::<Namespace>();
    let going: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let (news, seen, settle) = (queue.clone(), going.clone(), options.settle);
    namespaces.listen(move |change| {
        let name = change.key().name;
        if change.is_deletion() {
            seen.lock().remove(&name);
        } else if is_going(change.object()) {
            seen.lock().entry(name).or_insert_with(Instant::now);
            news.add_after(change.key(), settle);
        }
    });
    context.monitors().listen(Arc::new(Emptying { going: going.clone(), queue: queue.clone() }));
    namespaces.synced().await;
    let this = Arc::new(Namespaces { discovery: context.discovery(), context, namespaces, going });
    let (again, all, period) = (queue.clone(), this.clone(), options.sync_period);
    let again = async move {
        loop {
            tokio::time::sleep(period).await;
            let all = all.namespaces.all();
            all.iter().filter(|it| is_going(it)).for_each(|it| again.add(Key::of(&**it)));
        }
    };
    tokio::select! {
        () = again => {}
        () = run::run(this, queue, options.workers) => {}
    }
}

impl Reconcile for Namespaces {
    type Key = Key;

    fn name(&self) -> &'static str {
        "namespace"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let api: Api<Namespace> = Api::all(self.context.client.clone());
        // one of the same name may have come since: what is in that one must stay
        let Some(namespace) = unless(404, api.get(&key.name).await)? else { return Ok(Action::AwaitChange) };
        if !is_going(&namespace) {
            return Ok(Action::AwaitChange);
        }
        let Some(namespace) = self.say_terminating(&api, namespace).await? else {
            return Ok(Action::AwaitChange);
        };
        let held = namespace.spec.as_ref().and_then(|it| it.finalizers.as_ref());
        if held.is_none_or(Vec::is_empty) {
            return Ok(Action::AwaitChange);
        }
        let (found, asked) = self.empty(&key.name).await;
        self.say(&api, &namespace, &found).await;
        if let Some(why) = found.problem() {
            // what could not be found out is asked again
            self.going.lock().insert(key.name.clone(), Instant::now());
            return Err(why);
        }
        if found.seconds > 0 || asked.is_none() {
            return Ok(Action::Requeue(Duration::from_secs(found.seconds / 2 + 1)));
        }
        self.finalize(&api, namespace).await?;
        Ok(Action::AwaitChange)
    }
}

impl Namespaces {
    /// Deletes everything in a namespace, and says what is left.
    async fn empty(&self, name: &str) -> (DeletionReport, Option<Arc<ApiResources>>) {
        let mut found = DeletionReport::default();
        let since = *self.going.lock().entry(name.to_owned()).or_insert_with(Instant::now);
        let served = match self.discovery.since(since).await {
            Ok(served) => served,
            Err(why) => {
                found.undiscovered = Some(Failure::from(why).message());
                return (found, None);
            }
        };
        found.failed(&served);
        let client = &self.context.client;
        for resource in content::ordered(&served) {
            match content::delete_all(client, resource, name).await {
                Ok(left) => found.left(resource, left),
                Err(why) => found.refused.push(why.message()),
            }
        }
        (found, Some(served))
    }

    /// The phase follows the deletion, whoever deleted it. Nothing where it is gone meanwhile.
    async fn say_terminating(
        &self,
        api: &Api<Namespace>,
        mut namespace: Namespace,
    ) -> Result<Option<Namespace>, Failure> {
        for attempt in 1.. {
            let status = namespace.status.get_or_insert_default();
            if status.phase.as_deref() == Some("Terminating") {
                break;
            }
            status.phase = Some("Terminating".to_owned());
            let name = namespace.metadata.name.clone().unwrap_or_default();
            let body = serde_json::to_vec(&namespace).map_err(kube::Error::SerdeError)?;
            match unless(404, api.replace_status(&name, &PostParams::default(), body).await) {
                Err(kube::Error::Api(why)) if why.code == 409 && attempt < TRIES => {
                    let Some(now) = unless(404, api.get(&name).await)? else { return Ok(None) };
                    if now.metadata.uid != namespace.metadata.uid {
                        return Ok(None);
                    }
                    namespace = now;
                }
                written => return Ok(written?),
            }
        }
        Ok(Some(namespace))
    }

    /// Tells people what it waits for. If that fails it is told the next time.
    async fn say(&self, api: &Api<Namespace>, namespace: &Namespace, found: &DeletionReport) {
        let mut next = namespace.clone();
        let status = next.status.get_or_insert_default();
        if !conditions::update(
            status.conditions.get_or_insert_default(),
            &found.conditions(),
            &self.context.time(),
        ) {
            return;
        }
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        let Ok(body) = serde_json::to_vec(&next) else { return };
        if let Err(why) = api.replace_status(name, &PostParams::default(), body).await {
            tracing::debug!(namespace = name, %why, "conditions could not be written");
        }
    }

    /// Takes this loop's finalizer away; with the last one the namespace goes.
    async fn finalize(&self, api: &Api<Namespace>, namespace: Namespace) -> Result<(), Failure> {
        let own = self.context.names.namespace_finalizer();
        let name = namespace.metadata.name.clone().unwrap_or_default();
        let uid = namespace.metadata.uid.clone();
        for attempt in 1.. {
            let Some(mut now) = unless(404, api.get(&name).await)? else { return Ok(()) };
            if now.metadata.uid != uid {
                return Ok(());
            }
            let finalizers = now.spec.get_or_insert_default().finalizers.get_or_insert_default();
            finalizers.retain(|it| it != own);
            let body = serde_json::to_vec(&now).map_err(kube::Error::SerdeError)?;
            let path = Request::new("/api/v1/namespaces");
            let request = path.replace_subresource("finalize", &name, &PostParams::default(), body);
            match unless(404, send::<IgnoredAny>(&self.context.client, request).await) {
                Err(kube::Error::Api(why)) if why.code == 409 && attempt < TRIES => {}
                written => {
                    written?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
