//! The client of an API server: what a control loop, a scheduler and a node agent share.
//!
//! | module | what it is |
//! |---|---|
//! | [`transport`] | clients over HTTPS, each with a rate limit; a client in memory is a [`kube::Client`] over any service |
//! | [`retry_after`] | a transport that repeats requests when the server sends `Retry-After` |
//! | [`reflector`] | list, then watch, for ever |
//! | [`informer`], [`factory`] | a cache of the objects of a kind, with indexes and listeners; one per kind for all users |
//! | [`queue`], [`run`] | a work queue with backoff, and the workers that reconcile its keys |
//! | [`expectations`] | waits until an informer has seen one's own writes |
//! | [`retry_on_conflict`], [`request`] | writes among the writes of others, and requests by path |
//! | [`discovery`] | the resources that the server has |
//! | [`events`] | the recorder of events, with correlation |
//! | [`leader`] | leader election by a lease |
//! | [`metrics`] | metrics of queues, requests and leases |
//!
//! What always holds: one worker at a time reconciles a key; a failure is retried with backoff; a server that fails is
//! asked about once a second, and no more often. This crate knows no kind but leases and events, and nothing of the
//! server's insides.
//!
//! A loop that logs each service when it changes:
//!
//! ```no_run
//! use client::{Action, Failure, Informer, InformerFactory, Key, Queue, Reconcile, run};
//! use k8s_openapi::api::core::v1::Service;
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
//!             Some(service) => tracing::info!(%key, ?service.spec, "is there"),
//!             None => tracing::info!(%key, "is gone"),
//!         }
//!         Ok(Action::AwaitChange)
//!     }
//! }
//!
//! async fn log_services(client: kube::Client) {
//!     let services = InformerFactory::new(client).informer::<Service>();
//!     let queue = Queue::default();
//!     let changed = queue.clone();
//!     services.listen(move |change| changed.add(change.key()));
//!     services.synced().await;
//!     run::run(Arc::new(Logger { services }), queue, run::WORKERS).await;
//! }
//! ```

pub mod backoff;
pub mod discovery;
pub mod error;
pub mod events;
pub mod expectations;
pub mod factory;
pub mod informer;
pub mod key;
pub mod leader;
pub mod metrics;
pub mod queue;
pub mod reflector;
pub mod request;
pub mod retry_after;
pub mod retry_on_conflict;
pub mod run;
pub mod transport;

pub use self::metrics::Metrics;
pub use backoff::Backoff;
pub use error::{Failure, is_terminating, unless};
pub use events::{EventType, Note, Recorder};
pub use expectations::WriteTracker;
pub use factory::InformerFactory;
pub use informer::{Change, Informer};
pub use key::Key;
pub use queue::Queue;
pub use run::{Action, Reconcile};
