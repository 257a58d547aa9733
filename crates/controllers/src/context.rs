//! What every loop is given: a client, the shared informers, the names of the dialect, the clock.

use crate::discovery::Discovery;
use crate::events::Recorder;
use crate::gates::Gates;
use crate::informer::{Informer, Watched};
use crate::metrics::Metrics;
use crate::monitors::Monitors;
use crate::reflector::{Source, list_and_watch};
use env::World;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::chrono::{DateTime, Utc};
use kube::{Client, Resource};
use names::Names;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Calls in the name of the manager, or of the loop where each has its own account.
    pub client: Client,
    pub world: World,
    pub names: Arc<Names>,
    pub events: Recorder,
    pub measures: Metrics,
    pub gates: Gates,
    /// Clients of accounts, where each loop calls in the name of its own.
    accounts: Option<Accounts>,
    /// Clients of loops, where each has a rate of its own.
    clients: Option<Clients>,
    shared: Arc<Shared>,
}

/// Makes a client in the name of the manager.
pub type Clients = Arc<dyn Fn() -> Client + Send + Sync>;

/// Makes the client of an account of the system's namespace.
pub type Accounts = Arc<dyn Fn(&'static str) -> Client + Send + Sync>;

/// Which objects of a kind an informer follows: in one namespace or in all, with some fields or with any.
type Selection = (TypeId, String, String);

struct Shared {
    /// Watches for all loops.
    client: Client,
    informers: Mutex<HashMap<Selection, Box<dyn Any + Send>>>,
    following: Mutex<Vec<AbortHandle>>,
    discovery: Arc<Discovery>,
    monitors: Mutex<Option<Monitors>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.following.lock().iter().for_each(AbortHandle::abort);
    }
}

impl Context {
    pub fn new(client: Client, world: World, names: Names) -> Self {
        let names = Arc::new(names);
        let events =
            Recorder::new(client.clone(), world.clone(), &format!("{}-controller-manager", names.prefix));
        let shared = Shared {
            client: client.clone(),
            informers: Mutex::default(),
            following: Mutex::default(),
            discovery: Arc::new(Discovery::new(client.clone())),
            monitors: Mutex::default(),
        };
        let (measures, gates) = (Metrics::default(), Gates::default());
        let shared = Arc::new(shared);
        Context { client, world, names, events, measures, gates, accounts: None, clients: None, shared }
    }

    /// What loops count is counted in these.
    #[must_use]
    pub fn counted_in(self, measures: Metrics) -> Self {
        Context { measures, ..self }
    }

    /// Loops do what these gates let them.
    #[must_use]
    pub(crate) fn gated_by(self, gates: Gates) -> Self {
        Context { gates, ..self }
    }

    /// Each loop calls in the name of its own account from now on. What is watched is still watched by the manager,
    /// once for all.
    #[must_use]
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Context { accounts: Some(accounts), ..self }
    }

    /// Each loop calls through a client of its own from now on, so that none waits behind the requests of another.
    #[must_use]
    pub fn with_clients(self, clients: Clients) -> Self {
        Context { clients: Some(clients), ..self }
    }

    /// The same for the loop of an account; without a name, or where loops have no accounts, that of the manager.
    pub(crate) fn of_account(&self, account: &'static str) -> Self {
        match (&self.accounts, &self.clients) {
            (Some(accounts), _) if !account.is_empty() => self.of(accounts(account), account),
            (_, Some(clients)) => Context { client: clients(), ..self.clone() },
            _ => self.clone(),
        }
    }

    /// The same for one loop, which calls and records events in its own name.
    pub fn of(&self, client: Client, name: &str) -> Self {
        let events = Recorder::new(client.clone(), self.world.clone(), name);
        Context { client, events, ..self.clone() }
    }

    /// The one informer of a kind, which is started when it is first asked for.
    pub fn informer<K: Watched>(&self) -> Informer<K>
    where
        K::DynamicType: Default,
    {
        self.obtain("", "")
    }

    /// The one informer of those objects of a kind that a field selector chooses, in one namespace or, without a name,
    /// in all. The others are never sent.
    pub fn informer_of<K>(&self, namespace: &str, fields: &str) -> Informer<K>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.obtain(namespace, fields)
    }

    fn obtain<K: Watched>(&self, namespace: &str, fields: &str) -> Informer<K>
    where
        K::DynamicType: Default,
    {
        let mut informers = self.shared.informers.lock();
        let selection = (TypeId::of::<K>(), namespace.to_owned(), fields.to_owned());
        if let Some(known) = informers.get(&selection).and_then(|it| it.downcast_ref::<Informer<K>>()) {
            return known.clone();
        }
        let informer = Informer::<K>::new();
        informers.insert(selection, Box::new(informer.clone()));
        let place = Some(namespace).filter(|it| !it.is_empty());
        self.keep(list_and_watch(
            Source {
                client: self.shared.client.clone(),
                path: K::url_path(&K::DynamicType::default(), place),
                fields: fields.to_owned(),
                bare: false,
            },
            Box::new(informer.clone()),
        ));
        informer
    }

    /// Follows as long as somebody has this.
    fn keep(&self, following: impl Future<Output = ()> + Send + 'static) {
        self.shared.following.lock().push(tokio::spawn(following).abort_handle());
    }

    /// Which resources the server has, shared by all who ask.
    pub fn discovery(&self) -> Arc<Discovery> {
        self.shared.discovery.clone()
    }

    /// The metadata of everything, which is followed from when it is first asked for.
    pub fn monitors(&self) -> Monitors {
        let mut monitors = self.shared.monitors.lock();
        if let Some(known) = &*monitors {
            return known.clone();
        }
        let new = Monitors::new(self.shared.client.clone(), self.discovery(), &self.names);
        *monitors = Some(new.clone());
        self.keep(new.clone().keep());
        new
    }

    pub fn now(&self) -> i64 {
        env::unix_seconds(&self.world)
    }

    /// The same as objects have it.
    pub fn time(&self) -> Time {
        time(&self.world)
    }
}

/// What the clock says, as objects have it.
pub(crate) fn time(world: &World) -> Time {
    Time(DateTime::<Utc>::from(world.now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;
    use http::{Request, Response};
    use kube::client::Body;
    use std::convert::Infallible;
    use std::future::Pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;
    use tower_service::Service;

    /// A server that never answers.
    struct Silent;

    impl Service<Request<Body>> for Silent {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Pending<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            std::future::pending()
        }
    }

    #[tokio::test]
    async fn each_loop_has_a_client_of_its_own() {
        let client = || Client::new(Silent, "default");
        let made: Arc<AtomicUsize> = Arc::default();
        let count = made.clone();
        let context = Context::new(client(), Simulated::new(0, 7), Names::kubernetes());
        let context = context.with_clients(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            client()
        }));
        let _loops = [context.of_account("a"), context.of_account("b"), context.of_account("")];
        assert_eq!(made.load(Ordering::Relaxed), 3);
        // those of accounts come first, where loops have any
        let context = context.with_accounts(Arc::new(move |_| client()));
        let _account = context.of_account("a");
        assert_eq!(made.load(Ordering::Relaxed), 3);
        let _loop = context.of_account("");
        assert_eq!(made.load(Ordering::Relaxed), 4);
    }
}
