//! Serves the etcd v3 API from an embedded store.
//!
//! | part | what it is |
//! |---|---|
//! | `server.rs` | listeners, tasks, stop; `http.rs` routes requests, `tls.rs` |
//! | `service/` | the gRPC services, a file each; `check.rs` requests without state |
//! | `watch.rs` | the watches of a stream; `history.rs` recent changes in memory |
//! | `engine.rs` | the thread that writes batches; `writer.rs` applies requests; `shared.rs` the state that reads see |
//! | `index.rs` | revisions of keys, in memory; `selection.rs` the answer to a range request; `key_range.rs` |
//! | `database.rs` | the file; `leases.rs`; `auto_compaction.rs` |
//! | `snapshot.rs` | the store as a file of etcd (`bolt.rs`); `stored_form.rs` hashes as etcd has them |
//!
//! Invariants: nothing is acknowledged, read or sent to a watch before it is durable. All changes of a request have one
//! revision. Revisions have no gaps.
//!
//! Left out: clusters of several members, users and roles, the JSON gateway, the API v2.

mod auto_compaction;
mod bolt;
mod check;
mod crc32c;
mod database;
mod engine;
mod error;
mod gauges;
mod history;
mod http;
mod index;
mod key_range;
mod leases;
mod metrics;
mod selection;
mod server;
mod service;
mod shared;
mod snapshot;
mod stored_form;
#[cfg(test)]
mod tests;
mod tls;
mod watch;
mod writer;

pub use auto_compaction::Retention;
pub use database::{Location, OpenError};
pub use error::Error;
pub use server::{Endpoint, Options, Server, StartError};
pub use service::MemberInfo;
pub use shared::Limits;
pub use tls::TlsFiles;

/// The version of etcd whose API is served.
pub const VERSION: &str = "3.5.21";
/// The version of the API that all members of the cluster have.
pub const CLUSTER_VERSION: &str = "3.5.0";
