//! The client of an API server: what a control loop, a scheduler and a node agent share.
//!
//! | module | what it is |
//! |---|---|
//! | [`Client`], [`Api`] | requests, and the verbs over the objects of a resource |
//! | [`params`] | selections, patches, options of deletes |
//! | [`transport`] | the connections of clients over HTTPS, each with a rate limit |
//! | [`retry_after`] | a transport that repeats requests when the server sends `Retry-After` |
//! | [`reflector`] | list, then watch, for ever |
//! | [`informer`], [`factory`] | a cache of the objects of a kind, with indexes and listeners; one per kind for all users; or of summaries only |
//! | [`queue`], [`run`] | a work queue with backoff, and the workers that reconcile its keys |
//! | [`expectations`] | waits until an informer has seen one's own writes |
//! | [`retry_on_conflict`] | writes to objects that others write, too |
//! | [`discovery`] | the resources that the server has |
//! | [`TokenBucket`] | a rate limit, of requests and of events |
//! | [`events`] | the recorder of events, with correlation |
//! | [`leader`] | leader election by a lease |
//! | [`csi_translation`], [`flex_volume`] | in-tree volumes for their CSI drivers, and programs of FlexVolume drivers |
//! | [`claim_expansion`] | the status of a claim whose volume grows |
//! | [`metrics`] | metrics of queues, requests and leases |
//!
//! Invariants: one worker at a time reconciles a key; a failure is retried with backoff; requests to a server
//! that fails are about a second apart. This crate knows no kinds but leases and events, and the server by its API
//! alone.
//!
//! A loop that logs each service when it changes:
//!
//! ```no_run
//! use api::core::v1::Service;
//! use client::{Action, Failure, Informer, InformerFactory, Key, Queue, Reconcile, run};
//! use std::sync::Arc;
//!
//! struct Logger {
//!     services: Informer<Service>,
//! }
//!
//! impl Reconcile for Logger {
//!     type Key = Key;
//!
//!     fn name(&self) -> &'static str {
//!         "service-logger"
//!     }
//!
//!     async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
//!         match self.services.get(key) {
//!             Some(service) => tracing::info!(%key, ?service.spec, "exists"),
//!             None => tracing::info!(%key, "is gone"),
//!         }
//!         Ok(Action::AwaitChange)
//!     }
//! }
//!
//! async fn log_services(client: client::Client, world: env::World) {
//!     let services = InformerFactory::new(client).informer::<Service>();
//!     let queue = Queue::new(&world);
//!     let changed = queue.clone();
//!     services.listen(move |change| changed.add(change.key()));
//!     services.synced().await;
//!     run::run(Arc::new(Logger { services }), queue, run::WORKERS).await;
//! }
//! ```

pub mod backoff;
pub mod claim_expansion;
mod client;
pub mod csi_translation;
pub mod discovery;
pub mod error;
pub mod events;
pub mod expectations;
pub mod factory;
pub mod flex_volume;
mod hash_seed;
pub mod informer;
pub mod key;
pub mod leader;
pub mod metrics;
pub mod params;
pub mod queue;
pub mod reflector;
mod resource_api;
pub mod retry_after;
pub mod retry_on_conflict;
pub mod run;
mod shared_objects;
mod token_bucket;
pub mod transport;

pub use self::client::{Body, Client, Lines};
pub use self::metrics::Metrics;
pub use api::WatchEvent;
pub use backoff::Backoff;
pub use error::{Error, Failure, is_terminating, unless};
pub use events::{EventType, Note, Recorder};
pub use expectations::WriteTracker;
pub use factory::{InformerFactory, KnownInformers};
pub use informer::{Change, Handler, Informer, SummaryInformer};
pub use key::Key;
pub use params::{
    ListParams, Patch, Rendered, background, foreground, json_value, of_uid, orphan, unchanged,
};
pub use queue::Queue;
pub use resource_api::{Api, path_of};
pub use run::{Action, Reconcile};
pub use shared_objects::SharedObjects;
pub use token_bucket::{Rate, TokenBucket};
