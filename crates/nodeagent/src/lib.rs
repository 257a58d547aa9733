//! The node agent: makes the pods of a node run, and reports their state.
//!
//! ```text
//! sources/ (API, directory, URL) -> admission -> worker per pod: plan(spec, observed, now) -> actions -> runtime
//!                                                   ^ runtime events, probes, volumes, deletion      |
//! status/ <- observed <------------------------------------------------------------------------------+
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`agent`] | joins the parts, and runs them |
//! | [`sources`], [`admission`] | pods from the API, files, a URL; whether they may run here |
//! | [`pod`] | a pod's life: plan, worker, hooks, termination |
//! | [`images`], [`probes`] | images and their credentials; probes |
//! | [`status`] | statuses of pods, and their writer |
//! | [`runtime`] | the container runtime: a trait, the CRI behind it, a simulated one |
//! | [`cri_server`] | a container runtime served as the CRI |
//! | [`container`], [`downward`], [`objects`] | what a container sees, and the objects that it refers to |
//! | [`volumes`] | volumes of pods |
//! | [`local_volumes`] | persistent volumes that are folders of the node |
//! | [`resource_managers`] | CPUs, memory and devices of single containers |
//! | [`filesystem`] | changes of files and mounts, as one trait |
//! | [`plugin_watcher`] | plugins that register with the agent |
//! | [`file_watch`] | notifications of the kernel about files |
//! | [`eviction`] | ends pods that use too much |
//! | [`pod_setup`] | the surroundings of pods on this machine |
//! | [`pod_facts`] | facts that follow from a spec |

pub mod admission;
pub mod agent;
pub mod assembly;
pub mod cgroups;
pub mod configuration;
pub mod container;
pub mod cri_server;
pub mod dbus;
pub mod downward;
pub mod eviction;
pub mod file_watch;
pub mod filesystem;
pub mod identity;
pub mod images;
pub mod iptables;
pub mod local_volumes;
pub mod logs;
pub mod node;
pub mod objects;
pub mod plugin_watcher;
pub mod pod;
pub mod pod_facts;
pub mod pod_setup;
pub mod probes;
pub mod process_lock;
pub mod resource_managers;
pub mod runtime;
pub mod server;
pub mod shutdown;
pub mod sources;
pub mod stats;
pub mod status;
#[cfg(test)]
mod testing;
pub mod volumes;
