//! Assigns pods to nodes: filters and scores, pure over a snapshot.
//!
//! | module | what it is |
//! |---|---|
//! | [`snapshot`], [`node_info`], [`pod_info`], [`storage`], [`topology`] | the cluster as a cycle sees it |
//! | [`framework`] | profiles, statuses, the diagnosis of a failure |
//! | [`plugins`] | the plugins, one file each |
//! | [`evaluation`], `scoring` | runs the plugins of a profile on a pod: filters, then scores |
//! | [`cycle_state`] | what plugins prepared for a pod |
//! | [`class`] | pods of equal specification, which share results |
//! | [`node_set`], [`domain_filter`] | sets of nodes that a search skips |
//! | [`found_nodes`] | the nodes that a search found |
//! | `node_groups` | nodes that score alike |
//! | [`cycle`], [`outcome`] | one scheduling cycle: placement or failure |
//! | [`extender`] | services outside that take part |
//! | [`preemption`] | the pods to delete so that another fits |
//! | [`queue`] | the pods that wait to be scheduled |
//! | [`config`] | the configuration file |
//! | [`metrics`] | counters and histograms under upstream's names |
//! | [`scheduler`] | all of it together, without I/O |
//! | [`driver`] | the running scheduler: informers and requests |
//!
//! Only [`driver`] sends requests: it feeds the scheduler from informers, and writes bindings, conditions and events.

pub mod class;
pub mod config;
pub mod cycle;
pub mod cycle_state;
pub mod domain_filter;
pub mod driver;
pub mod evaluation;
pub mod extender;
pub mod found_nodes;
pub mod framework;
mod interner;
pub mod metrics;
mod node_groups;
pub mod node_info;
mod node_problem;
pub mod node_set;
mod node_tree;
pub mod outcome;
mod panic_guard;
mod plugin_timer;
pub mod plugins;
pub mod pod_info;
pub mod preemption;
pub mod queue;
pub mod resource;
pub mod scheduler;
mod scoring;
pub mod selector;
pub mod snapshot;
pub mod storage;
pub mod topology;
