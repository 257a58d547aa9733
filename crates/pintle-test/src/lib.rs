//! Clusters for tests, in the process of the test: a control plane in memory, with simulated nodes, a clock that the test
//! holds, faults on request and forks.
//!
//! ```no_run
//! use api::apps::v1::Deployment;
//! use pintle_test::{Api, Clock, Cluster, ClusterOptions};
//!
//! # async fn test(deployment: Deployment) -> anyhow::Result<()> {
//! let options = ClusterOptions { nodes: 3, clock: Clock::Manual { seed: Some(7) }, ..ClusterOptions::default() };
//! let cluster = Cluster::start(options).await?;
//! let deployments = Api::<Deployment>::namespaced(cluster.client(), "default");
//! deployments.create(&deployment).await?;
//! cluster.settle().await?;
//! assert_eq!(deployments.get("web").await?.status.available_replicas, 3);
//! cluster.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Other clients use [`Cluster::kubeconfig_file`]. Clusters share nothing but the log: as many as needed run side by side.
//! A cluster stops when it is dropped, a fork with the cluster that it was made from at the latest; [`Cluster::stop`] also
//! waits for the end.

mod cluster;
mod options;

pub use client::{Api, Client};
pub use cluster::{Cluster, ClusterControls, Movement};
pub use options::{Clock, ClusterOptions};
pub use pintle::{CrashPoint, Instruments, Observation, ObservedChange, Users};
