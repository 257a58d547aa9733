//! The node of tests.

use super::{DnsOptions, NodeFacts};
use std::path::PathBuf;

pub fn node() -> NodeFacts {
    NodeFacts {
        root_dir: PathBuf::from("/var/lib/agent"),
        host_ip: "192.0.2.1".to_owned(),
        memory_capacity: 8 << 30,
        dns: DnsOptions {
            cluster_dns: vec!["10.96.0.10".to_owned()],
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: None,
            node_ips: Vec::new(),
        },
        ..NodeFacts::default()
    }
}
