//! What every loop is given: a client, the shared informers, the names of the dialect, the clock.

use crate::events::Recorder;
use crate::informer::{Informer, Watched};
use ambient::World;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::chrono::{DateTime, Utc};
use kube::{Api, Client};
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
    /// Clients of accounts, where each loop calls in the name of its own.
    accounts: Option<Accounts>,
    shared: Arc<Shared>,
}

/// Makes the client of an account of the system's namespace.
pub type Accounts = Arc<dyn Fn(&'static str) -> Client + Send + Sync>;

struct Shared {
    /// Watches for all loops.
    client: Client,
    informers: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
    following: Mutex<Vec<AbortHandle>>,
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
        let shared =
            Shared { client: client.clone(), informers: Mutex::default(), following: Mutex::default() };
        Context { client, world, names, events, accounts: None, shared: Arc::new(shared) }
    }

    /// Each loop calls in the name of its own account from now on. What is watched is still watched by the manager,
    /// once for all.
    #[must_use]
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Context { accounts: Some(accounts), ..self }
    }

    /// The same for the loop of an account; without a name, or where loops have no accounts, that of the manager.
    pub(crate) fn of_account(&self, account: &'static str) -> Self {
        match &self.accounts {
            Some(accounts) if !account.is_empty() => self.of(accounts(account), account),
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
        let mut informers = self.shared.informers.lock();
        if let Some(known) = informers.get(&TypeId::of::<K>()).and_then(|it| it.downcast_ref::<Informer<K>>())
        {
            return known.clone();
        }
        let informer = Informer::<K>::new();
        informers.insert(TypeId::of::<K>(), Box::new(informer.clone()));
        let following = tokio::spawn(informer.clone().follow(Api::<K>::all(self.shared.client.clone())));
        self.shared.following.lock().push(following.abort_handle());
        informer
    }

    pub fn now(&self) -> i64 {
        ambient::unix_seconds(&self.world)
    }

    /// The same as objects have it.
    pub fn time(&self) -> Time {
        Time(DateTime::<Utc>::from(self.world.now()))
    }
}
