//! The network of a cluster, in parts that are usable alone: addresses and routes of pods (`pod_network`), addresses
//! of services (`proxy`), names of both (`dns`), and the connections that are allowed (`policy`). `netfilter` writes
//! packet filter rules to the kernel; `kernel_support` tells whether a kernel can have them.
//!
//! The rules that the kernel should have are a pure function of the objects of the API; only the difference is written.
//!
//! | module | what it is |
//! |---|---|
//! | `pod_network` | addresses of pods: `cni` the plugin, `attachments` its record, `host_ports`, `node` routes to other nodes |
//! | `proxy` | services: `rules` its table, `fragment` one service, `state` changes to batches, `run` the informers |
//! | `policy` | network policies: `membership` the pods of selections, `rules` chains and sets, `state` changes to batches |
//! | `dns` | `records` snapshot of names, `lookup` answers from it, `forward` other servers, `peers` its other servers |
//! | `load_balancer` | ports that a node offers to load balancers |
//! | `netfilter` | nf_tables over netlink: `ruleset` the model, `diff`, `tracked_table`, `batch` one transaction, `conntrack` |
//! | `netlink`, `namespace` | links, routes and addresses; network namespaces |
//! | `http_server` | pages of health and metrics |

pub mod dns;
pub mod http_server;
pub mod kernel_support;
pub mod load_balancer;
pub mod netfilter;
pub mod pod_network;
pub mod policy;
pub mod proxy;
