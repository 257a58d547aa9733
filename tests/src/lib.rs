//! The harness of the end-to-end tests: a whole server in the process of the test, called over TLS.
//!
//! ```text
//! let cluster = Cluster::start().await;
//! let created = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "a"}})).await.code(201).json();
//! let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
//! ```
//!
//! Invariants: each [`Cluster`] has a store, a port and a clock of its own, so tests neither share
//! state nor order. Time stands still until a test moves it, and randomness follows from a seed. Nothing
//! waits without a bound: [`TIMEOUT`] fails the test.
//!
//! Left out: access to the internals of the server where HTTP is enough.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a harness fails the test that uses it")]

pub mod agent;
mod cluster;
mod disk;
mod egress_proxy;
mod extension_server;
pub mod http2;
mod https_server;
mod kms_plugin;
mod kube_client;
mod managed_cluster;
mod oidc_provider;
mod pki;
mod request;
mod thread_blocker;
mod transport;
mod watch;

pub use cluster::{Cluster, NOW, Options};
pub use disk::Disk;
pub use egress_proxy::{EgressProxy, ProxyBehavior, ProxyKind};
pub use extension_server::{ExtensionServer, GROUP_VERSION, ProxiedRequest, ServerBehavior};
pub use https_server::{HttpsServer, ReceivedRequest, Reply, SideEffect};
pub use kms_plugin::KmsPlugin;
pub use managed_cluster::{ManagedCluster, until};
pub use oidc_provider::{OidcProvider, ProviderResponses, SigningKey};
pub use pki::{Authority, Pair, authority, self_signed};
pub use request::{ApiRequest, ApiResponse, Payload, escape, fetch, fetch_response};
pub use thread_blocker::ThreadBlocker;
pub use transport::{Protocol, Stream, TestUser};
pub use watch::Watch;

use std::time::Duration;

/// The bound on every wait, long enough for a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Waits for `work`, at most [`TIMEOUT`].
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what} did not happen within {TIMEOUT:?}"),
    }
}
