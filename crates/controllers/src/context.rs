//! The context of a loop: its client, the shared informers, the names of the dialect, the clock, metrics and gates.

use crate::gates::Gates;
use crate::metadata_informers::MetadataInformers;
use api::{Resource, Time};
use client::discovery::Discovery;
use client::events::Recorder;
use client::informer::Informer;
use client::metrics::Metrics;
use client::{Client, InformerFactory};
use env::World;
use names::Names;
use parking_lot::Mutex;
use std::sync::Arc;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The client of the manager, or of the loop where each loop has an account of its own.
    pub client: Client,
    pub world: World,
    pub names: Arc<Names>,
    pub events: Recorder,
    pub metrics: Metrics,
    pub gates: Gates,
    /// Creates clients of accounts, where each loop has its own.
    accounts: Option<Accounts>,
    /// Creates clients of the manager, where each loop has its own rate limit.
    clients: Option<Clients>,
    /// The informers of all loops, which watch with the manager's client.
    informers: InformerFactory,
    shared: Arc<Shared>,
}

/// Creates a client of the manager.
pub type Clients = Arc<dyn Fn() -> Client + Send + Sync>;

/// Creates the client of an account of the system's namespace.
pub type Accounts = Arc<dyn Fn(&'static str) -> Client + Send + Sync>;

struct Shared {
    discovery: Arc<Discovery>,
    metadata_informers: Mutex<Option<MetadataInformers>>,
}

impl Context {
    pub fn new(client: Client, world: World, names: Names) -> Self {
        let names = Arc::new(names);
        let events =
            Recorder::new(client.clone(), world.clone(), &format!("{}-controller-manager", names.prefix));
        let informers = InformerFactory::new(client.clone());
        let discovery = Arc::new(Discovery::new(client.clone()));
        let shared = Arc::new(Shared { discovery, metadata_informers: Mutex::default() });
        let (metrics, gates) = (Metrics::default(), Gates::default());
        Context {
            client,
            world,
            names,
            events,
            metrics,
            gates,
            accounts: None,
            clients: None,
            informers,
            shared,
        }
    }

    /// Sets the metrics of the loops.
    #[must_use]
    pub fn counted_in(self, metrics: Metrics) -> Self {
        Context { metrics, ..self }
    }

    /// Sets the feature gates.
    #[must_use]
    pub(crate) fn gated_by(self, gates: Gates) -> Self {
        Context { gates, ..self }
    }

    /// Gives each loop a client of its own account. Watches remain those of the manager.
    #[must_use]
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Context { accounts: Some(accounts), ..self }
    }

    /// Gives each loop a client of its own, so that none waits behind the requests of another.
    #[must_use]
    pub fn with_clients(self, clients: Clients) -> Self {
        Context { clients: Some(clients), ..self }
    }

    /// The context of the loop of an account; that of the manager if the name is empty or loops have no accounts.
    pub(crate) fn of_account(&self, account: &'static str) -> Self {
        match (&self.accounts, &self.clients) {
            (Some(accounts), _) if !account.is_empty() => self.of(accounts(account), account),
            (_, Some(clients)) => Context { client: clients(), ..self.clone() },
            _ => self.clone(),
        }
    }

    /// The context of one loop, which sends requests and records events in its own name.
    pub fn of(&self, client: Client, name: &str) -> Self {
        let events = Recorder::new(client.clone(), self.world.clone(), name);
        Context { client, events, ..self.clone() }
    }

    /// The informer of all objects of a kind, shared by all loops.
    pub fn informer<K: Resource>(&self) -> Informer<K> {
        self.informers.informer()
    }

    /// The informer of the objects of a kind that a field selector matches, in one namespace or, if that is empty, in
    /// all.
    pub fn informer_of<K: Resource>(&self, namespace: &str, fields: &str) -> Informer<K> {
        self.informers.informer_of(namespace, fields)
    }

    /// Discovery of the server's resources, shared by all loops.
    pub fn discovery(&self) -> Arc<Discovery> {
        self.shared.discovery.clone()
    }

    /// The metadata informers of all resources. The first call starts them.
    pub fn metadata_informers(&self) -> MetadataInformers {
        let mut metadata_informers = self.shared.metadata_informers.lock();
        if let Some(known) = &*metadata_informers {
            return known.clone();
        }
        let (client, known) = (self.informers.client().clone(), self.informers.known());
        let new = MetadataInformers::new(client, known, self.discovery(), &self.names, self.world.clone());
        *metadata_informers = Some(new.clone());
        self.informers.spawn(new.clone().keep());
        new
    }

    /// The current time in Unix seconds.
    pub fn now(&self) -> i64 {
        env::unix_seconds(&self.world)
    }

    /// The current time as objects have it, in whole seconds.
    pub fn time(&self) -> Time {
        time(&self.world)
    }
}

/// Ends all informers of a context when it is dropped. Listeners of loops hold the context.
pub(crate) struct CloseAtEnd(pub Context);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.informers.close();
        let metadata_informers = self.0.shared.metadata_informers.lock().take();
        metadata_informers.iter().for_each(MetadataInformers::close);
    }
}

/// The current time as objects have it.
pub(crate) fn time(world: &World) -> Time {
    Time::from(world.now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server;
    use env::Simulated;
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn each_loop_has_a_client_of_its_own() {
        let client = || Client::new(server(|_| pending()));
        let created: Arc<AtomicUsize> = Arc::default();
        let count = created.clone();
        let context = Context::new(client(), Simulated::new(0, 7), Names::kubernetes());
        let context = context.with_clients(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            client()
        }));
        let _loops = [context.of_account("a"), context.of_account("b"), context.of_account("")];
        assert_eq!(created.load(Ordering::Relaxed), 3);
        // clients of accounts come first, where loops have accounts
        let context = context.with_accounts(Arc::new(move |_| client()));
        let _account = context.of_account("a");
        assert_eq!(created.load(Ordering::Relaxed), 3);
        let _loop = context.of_account("");
        assert_eq!(created.load(Ordering::Relaxed), 4);
    }
}
