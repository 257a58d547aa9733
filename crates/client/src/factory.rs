//! The informers of a process: one per kind and selection, shared by all users.

use crate::client::Client;
use crate::informer::{Handler, Informer, MetadataFollower, SummaryInformer};
use crate::reflector::{Source, list_and_watch};
use crate::resource_api::path_of;
use api::Resource;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::task::AbortHandle;

/// See the module. Cheap to clone; the reflectors end with the last clone, or when it is [closed](Self::close).
#[derive(Clone)]
pub struct InformerFactory {
    shared: Arc<Shared>,
}

/// The type of the objects, the namespace and the field selector; empty for all.
type Selection = (TypeId, String, String);

struct Shared {
    client: Client,
    informers: Mutex<HashMap<Selection, Arc<dyn AnyInformer>>>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// An informer of some kind.
trait AnyInformer: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    /// The path of the objects of its kind.
    fn path(&self) -> String;
    fn follow_metadata(&self, follower: &Arc<dyn MetadataFollower>);
    fn close(&self);
}

impl<K: Resource> AnyInformer for Informer<K> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn path(&self) -> String {
        path_of::<K>("")
    }

    fn follow_metadata(&self, follower: &Arc<dyn MetadataFollower>) {
        Informer::follow_metadata(self, follower);
    }

    fn close(&self) {
        Informer::close(self);
    }
}

impl Shared {
    fn abort_tasks(&self) {
        self.tasks.lock().iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.abort_tasks();
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
        if let Some(known) =
            informers.get(&selection).and_then(|it| it.as_any().downcast_ref::<Informer<K>>())
        {
            return known.clone();
        }
        let informer = Informer::<K>::new(self.client().decoder(), self.client().hash_seed());
        informers.insert(selection, Arc::new(informer.clone()));
        self.spawn(list_and_watch(self.source::<K>(namespace, fields), Box::new(informer.clone())));
        informer
    }

    /// The informers that there are, for one that the factory keeps.
    pub fn known(&self) -> KnownInformers {
        KnownInformers { factory: Arc::downgrade(&self.shared) }
    }

    /// Starts an informer of the objects of a kind that a field selector matches, in all namespaces, for one user that
    /// takes the objects: it is not shared.
    pub fn summaries<K: Resource, H: Handler<K>>(&self, fields: &str, handler: H) -> SummaryInformer<K, H> {
        let informer = SummaryInformer::new(handler, self.client().decoder(), self.client().hash_seed());
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

    /// Ends the reflectors, and drops listeners and objects of all informers. A listener often holds the informer that it
    /// belongs to, and the factory with it: without this call they would keep each other for ever.
    pub fn close(&self) {
        self.shared.abort_tasks();
        let informers = std::mem::take(&mut *self.shared.informers.lock());
        informers.values().for_each(|it| it.close());
    }

    /// Runs a task that ends with this factory.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.tasks.lock().push(tokio::spawn(task).abort_handle());
    }
}

/// The informers of a factory, which ends without regard to this.
#[derive(Clone)]
pub struct KnownInformers {
    factory: Weak<Shared>,
}

impl KnownInformers {
    /// Gives a follower the metadata of the objects at a path, in all namespaces, from the informer that has them already.
    /// Returns whether there is one.
    pub fn follow_metadata(&self, path: &str, follower: &Arc<dyn MetadataFollower>) -> bool {
        let Some(factory) = self.factory.upgrade() else { return false };
        let has_all = |(_, namespace, fields): &Selection| namespace.is_empty() && fields.is_empty();
        let found = {
            let informers = factory.informers.lock();
            let found = informers.iter().find(|(selection, it)| has_all(selection) && it.path() == path);
            found.map(|(_, informer)| informer.clone())
        };
        // without the lock, which a listener may want
        found.inspect(|informer| informer.follow_metadata(follower)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Body;
    use api::core::v1::Pod;
    use http::{Request, Response};
    use std::convert::Infallible;
    use std::future::Pending;
    use std::task::{Context, Poll};

    /// A server that never answers.
    #[derive(Clone)]
    struct Silent;

    impl tower_service::Service<Request<Body>> for Silent {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Pending<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            std::future::pending()
        }
    }

    #[tokio::test]
    async fn a_closed_factory_drops_listeners_that_hold_it() {
        let factory = InformerFactory::new(Client::new(Silent));
        let (pods, owner) = (factory.informer::<Pod>(), Arc::new(()));
        let held = (factory.clone(), pods.clone(), owner.clone());
        pods.listen(move |_| drop(held.clone()));
        assert_eq!(Arc::strong_count(&owner), 2);
        factory.close();
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
