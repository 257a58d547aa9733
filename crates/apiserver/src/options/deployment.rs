//! Callbacks and facts that the surrounding process gives the server.

use crate::faults::Faults;
use bytes::Bytes;
use env::Paused;
use futures_util::future::BoxFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use store::{Revision, SnapshotRecord};

/// Called with the address of the listener before the server is ready. An error keeps the server from starting.
pub type BeforeReady = Box<dyn FnOnce(SocketAddr) -> Result<(), String> + Send>;

/// Checks whether a component works; the error says why it does not.
pub type ComponentHealth = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A fork of the cluster.
#[derive(Debug, Clone)]
pub struct ForkInfo {
    pub name: String,
    /// The URL of its API server.
    pub server: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: String,
}

/// Starts and stops forks of the cluster in the same process.
pub trait ClusterHost: Send + Sync {
    /// Starts a fork with the records of a snapshot: their revision, and the time of the cluster in Unix seconds.
    fn fork(&self, snapshot: (Revision, i64, Vec<SnapshotRecord>))
    -> BoxFuture<'_, Result<ForkInfo, String>>;
    /// The forks that run.
    fn list(&self) -> Vec<ForkInfo>;
    /// Stops a fork; false if there is none of this name.
    fn stop(&self, name: &str) -> BoxFuture<'_, bool>;
}

/// The default is a standalone server with persistent keys.
#[derive(Default)]
pub struct Deployment {
    pub before_ready: Option<BeforeReady>,
    /// The components that run in the same process and need no lease, by the names that `componentstatuses` has. Others are
    /// found by their leases.
    pub components: Vec<(&'static str, ComponentHealth)>,
    /// Whether the key that signs tokens exists only in this process.
    pub ephemeral_signer: bool,
    /// Whether the authorities for clients and proxies exist only in this process.
    pub ephemeral_authorities: bool,
    /// Keys and certificates that snapshots of a cluster in memory contain, by their keys in the snapshot.
    pub cluster_files: Vec<(String, Bytes)>,
    /// The clock of the process, if its users hold it: it is served at `/simulation/clock`.
    pub clock: Option<Arc<Paused>>,
    /// Starts forks of a cluster in memory: they are served at `/simulation/clusters`.
    pub clusters: Option<Arc<dyn ClusterHost>>,
    /// The faults of a cluster for tests: they are served at `/simulation/faults`.
    pub faults: Option<Arc<Faults>>,
}
