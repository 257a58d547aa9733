//! The control loops, one folder each, and their shared modules.
//!
//! A loop watches some kinds and brings the observed state closer to the desired one. It is a client like any other: it
//! sends requests through a [`client::Client`], over a network or through memory, and knows the server by its API alone.
//!
//! Most loops have the same shape:
//!
//! ```text
//! informers ──changes──► queue of keys ──► reconcile(key): snapshot ──► actions ──► client
//!     ▲                                                                              │
//!     └──────────────────────────── watch ◄── API server ◄───────────────────────────┘
//! ```
//!
//! Invariants: one worker at a time reconciles a key, however often it changes meanwhile; a failure is retried
//! with backoff; a loop decides from the informers' state, never from its own writes, and reconciling is idempotent.
//! Where possible, the decision is a pure function from a snapshot to actions.
//!
//! | module | what it is |
//! |---|---|
//! | `registry` | the list of loops, and the only file that knows them |
//! | `context`, `accounts`, `gates` | shared state of loops; a service account per loop; feature gates |
//! | `metadata_informers`, `controller_ref`, `revisions`, `scales` | informers of all resources; ownership; revisions; scales |
//! | `pods`, `replicas` | pods from templates; replica sets and replication controllers |
//! | `backends`, `slices`, `service` | endpoints of services; addresses of load balancers |
//! | `volumes`, `persistentvolume_binder`, `attachdetach`, `local_volume_provisioner` | storage |
//! | `garbagecollector/graph` | owners and dependents |

pub mod accounts;
pub mod attachdetach;
pub mod backends;
pub mod bootstrap_signer;
mod bootstrap_token;
pub mod clusterrole_aggregation;
pub mod context;
pub mod controller_ref;
pub mod cronjob;
mod csr;
pub mod csrapproving;
pub mod csrcleaner;
pub mod csrsigning;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod endpoint;
pub mod endpointslice;
pub mod endpointslicemirroring;
pub mod ephemeral_volume;
pub mod garbagecollector;
pub mod gates;
pub mod hash;
pub mod horizontalpodautoscaling;
pub mod int_or_percent;
pub mod job;
pub mod local_volume_provisioner;
pub mod metadata_informers;
pub mod namespace;
pub mod nodeipam;
pub mod nodelifecycle;
pub(crate) mod nodes;
pub mod persistentvolume_binder;
pub mod persistentvolume_expander;
pub mod podgc;
pub mod pods;
pub mod pv_protection;
pub mod pvc_protection;
pub mod registry;
pub mod replicas;
pub mod resourcequota;
pub mod revisions;
pub mod root_ca_publisher;
pub mod scales;
pub mod service;
pub mod serviceaccount;
pub mod serviceaccount_token;
pub mod slices;
pub mod statefulset;
pub mod storage_version_gc;
#[cfg(test)]
mod testing;
pub mod token_cleaner;
pub mod ttl;
pub mod ttlafterfinished;
pub mod volumes;

pub use context::Context;
