//! Assigns pods to nodes: filters and scores, pure over a snapshot.
//!
//! | module | what it is |
//! |---|---|
//! | [`snapshot`], [`node_info`], [`pod_info`], [`storage`], [`topology`] | the cluster as a cycle sees it |
//! | [`framework`] | profiles, statuses, the diagnosis of a failure |
//! | [`plugins`] | the plugins, one file each |
//! | [`evaluation`] | runs the plugins of a profile on a pod |
//! | [`class`] | pods of equal specification, which share results |
//! | [`cycle`] | one scheduling cycle: placement or failure |
//! | [`extender`] | services outside that take part |
//! | [`preemption`] | the pods to delete so that another fits |
//! | [`queue`] | the pods that wait to be scheduled |
//! | [`config`] | the configuration file |
//! | [`scheduler`] | all of it together, without I/O |
//! | [`driver`] | the running scheduler: informers and requests |
//!
//! Only [`driver`] sends requests: it feeds the scheduler from informers, and writes bindings, conditions and events.

pub mod class;
pub mod config;
pub mod cycle;
pub mod driver;
pub mod evaluation;
pub mod extender;
pub mod framework;
pub mod node_info;
mod node_tree;
pub mod plugins;
pub mod pod_info;
pub mod preemption;
pub mod queue;
pub mod resource;
pub mod scheduler;
pub mod selector;
pub mod snapshot;
pub mod storage;
pub mod topology;
