//! The network of a cluster, in parts that are usable alone: addresses and routes of pods (`pod_network`), addresses
//! of services (`proxy`), and names of both (`dns`). `netfilter` writes packet filter rules to the kernel.
//!
//! The rules that the kernel should have are a pure function of the objects of the API; only the difference is written.

pub mod dns;
pub mod netfilter;
pub mod pod_network;
pub mod proxy;
