//! The informers of a process: one per kind and selection, shared by all users.

use crate::client::Client;
use crate::informer::{Handler, Informer, SummaryInformer};
use crate::reflector::{Source, list_and_watch};
use crate::resource_api::path_of;
use api::Resource;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// See the module. Cheap to clone; the reflectors end with the last clone.
#[derive(Clone)]
pub struct InformerFactory {
    shared: Arc<Shared>,
}

/// The type of the objects, the namespace and the field selector; empty for all.
type Selection = (TypeId, String, String);

struct Shared {
    client: Client,
    informers: Mutex<HashMap<Selection, Box<dyn Any + Send>>>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.tasks.lock().iter().for_each(AbortHandle::abort);
    }
}

impl InformerFactory {
    /// Informers list and watch through this client.
    pub fn new(client: Client) -> Self {
        let shared = Shared { client, informers: Mutex::default(), tasks: Mutex::default() };
        InformerFactory { shared: Arc::new(shared) }
    }

    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// The informer of all objects of a kind. The first call starts it.
    pub fn informer<K: Resource>(&self) -> Informer<K> {
        self.obtain("", "")
    }

    /// The informer of the objects of a kind that a field selector matches, in one namespace or, if that is empty, in
    /// all. The server filters: other objects are not sent.
    pub fn informer_of<K: Resource>(&self, namespace: &str, fields: &str) -> Informer<K> {
        self.obtain(namespace, fields)
    }

    fn obtain<K: Resource>(&self, namespace: &str, fields: &str) -> Informer<K> {
        let mut informers = self.shared.informers.lock();
        let selection = (TypeId::of::<K>(), namespace.to_owned(), fields.to_owned());
        if let Some(known) = informers.get(&selection).and_then(|it| it.downcast_ref::<Informer<K>>()) {
            return known.clone();
        }
        let informer = Informer::<K>::default();
        informers.insert(selection, Box::new(informer.clone()));
        self.spawn(list_and_watch(self.source::<K>(namespace, fields), Box::new(informer.clone())));
        informer
    }

    /// Starts an informer of the objects of a kind that a field selector matches, in all namespaces, for one user that
    /// takes the objects: it is not shared.
    pub fn summaries<K: Resource, H: Handler<K>>(&self, fields: &str, handler: H) -> SummaryInformer<K, H> {
        let informer = SummaryInformer::new(handler);
        self.spawn(list_and_watch(self.source::<K>("", fields), Box::new(informer.clone())));
        informer
    }

    fn source<K: Resource>(&self, namespace: &str, fields: &str) -> Source {
        Source {
            client: self.shared.client.clone(),
            path: path_of::<K>(namespace),
            fields: fields.to_owned(),
            metadata_only: false,
        }
    }

    /// Runs a task that ends with this factory.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.tasks.lock().push(tokio::spawn(task).abort_handle());
    }
}
