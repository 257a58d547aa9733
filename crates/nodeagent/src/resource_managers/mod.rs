//! The resource managers: CPUs, memory and devices that belong to one container.
//!
//! A pod gets them when it is admitted, container by container. If there is a topology policy, each manager says from
//! which NUMA nodes it could give what the container needs, and the best nodes for all of them are chosen first. What
//! pods have is in files, and survives a restart; it is taken back when the pod is gone.
//!
//! | module | what it is |
//! |---|---|
//! | [`topology`] | NUMA nodes of the machine; hints and their merging |
//! | [`cpu`], [`memory`], [`devices`] | the managers |
//! | [`managers`] | all of them together: admission, containers, clean-up |
//! | [`allocation_error`] | why a pod cannot have what it needs |
//! | [`admission_queue`] | pods that wait for their resources, one after the other |
//! | [`pod_sources`] | the pods of the node as the managers see them |
//! | [`pod_resources`] | the pod resources API |
//! | [`checkpoint`], [`policy_state`] | files of managers; a policy with its state in one |
//! | [`unix_server`] | gRPC servers at sockets |

pub mod admission_queue;
pub mod allocation_error;
pub mod checkpoint;
pub mod cpu;
pub mod devices;
pub mod managers;
pub mod memory;
pub mod pod_resources;
pub mod pod_sources;
pub mod policy_state;
pub mod topology;
pub mod unix_server;

#[cfg(test)]
pub mod testing;

pub use admission_queue::AdmissionQueue;
pub use allocation_error::AllocationError;
pub use managers::{ContainerResources, ManagerOptions, ResourceManagers};
pub use pod_sources::{ActiveContainers, PodSource};
