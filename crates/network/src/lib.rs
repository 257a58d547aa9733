//! The network of a cluster, in parts that are usable alone: addresses and routes of pods (`pod_network`), addresses
//! of services (`proxy`), names of both (`dns`), and the connections that are allowed (`policy`). `netfilter` writes packet filter rules to the kernel;
//! `kernel_support` tells whether a kernel can have them.
//!
//! The rules that the kernel should have are a pure function of the objects of the API; only the difference is written.

pub mod dns;
pub mod http_server;
pub mod kernel_support;
pub mod load_balancer;
pub mod netfilter;
pub mod pod_network;
pub mod policy;
pub mod proxy;
