//! The harness of the end-to-end tests: a whole server in the test's own process, spoken to over TLS.
//!
//! ```text
//! let cluster = Cluster::start().await;
//! let made = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "a"}})).await.code(201).json();
//! let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
//! ```
//!
//! What always holds: each [`Cluster`] has a store, a port and a clock of its own, so tests neither share
//! state nor order. Time stands still until a test moves it, and randomness follows from a seed. Nothing
//! waits without a bound: what does not come within [`TIMEOUT`] fails the test.
//!
//! What it does not do: reach into the server where HTTP can say the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a harness fails the test that uses it")]

pub mod agent;
mod ask;
mod between;
mod cluster;
mod disk;
mod elsewhere;
mod extension;
mod hold;
pub mod http2;
mod key_server;
mod kube_client;
mod managed;
mod pki;
mod provider;
mod transport;
mod watch;

pub use ask::{Answer, Ask, Payload, answer, ask, escape};
pub use between::{Between, Conduct, Kind};
pub use cluster::{Cluster, NOW, Options};
pub use disk::Disk;
pub use elsewhere::{Deed, Elsewhere, Reply, Seen};
pub use extension::{Extension, GROUP_VERSION, Mood, Passed};
pub use hold::Hold;
pub use key_server::KeyServer;
pub use managed::{Managed, until};
pub use pki::{Authority, Pair, authority, self_signed};
pub use provider::{Provider, Published, SigningKey};
pub use transport::{Protocol, Stream, Who};
pub use watch::Watch;

use std::time::Duration;

/// How long a test waits for what should come at once: long enough for a machine that is busy with other things.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Waits for `work`, but not for ever.
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what} did not happen within {TIMEOUT:?}"),
    }
}
