//! The ignored flags and the defaults of `pintle apiserver`.

use super::ignored::IgnoredFlag;
use super::shared::NO_CLOUD;
use super::value::Type::{Bool, Choice, Duration, Int, List, Networks, Text, Uint};

/// Upstream's defaults, where `pintle up` has others.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("authorization-mode", "AlwaysAllow"),
    ("bind-address", "0.0.0.0"),
    ("enable-bootstrap-token-auth", "false"),
    // the machines of a small cluster have no names that the others resolve
    ("kubelet-preferred-address-types", "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"),
    ("service-cluster-ip-range", "10.0.0.0/24"),
];

const COUNTED: &str = "object counts are read when metrics are scraped";
const MEMORY: &str = "all reads are served from memory, which is always current";
const NO_READ_ONLY_PORT: &str = "the read-only port of kubelets is never used";

pub const IGNORED: &[IgnoredFlag] = &[
    IgnoredFlag::new("apiserver-count", Int, "1", "servers of one store find each other by leases")
        .deprecated(),
    IgnoredFlag::new("cloud-provider-gce-l7lb-src-cidrs", Networks, "130.211.0.0/22,35.191.0.0/16", NO_CLOUD),
    IgnoredFlag::new("contention-profiling", Bool, "false", "there is no lock contention profile"),
    IgnoredFlag::new(
        "default-watch-cache-size",
        Int,
        "100",
        "the size of the watch history follows from time and bytes",
    )
    .deprecated(),
    IgnoredFlag::new("enable-logs-handler", Bool, "true", "log files are not served").deprecated(),
    IgnoredFlag::new("etcd-count-metric-poll-period", Duration, "1m0s", COUNTED),
    IgnoredFlag::new("kubelet-read-only-port", Uint, "10255", NO_READ_ONLY_PORT).deprecated(),
    IgnoredFlag::new(
        "master-service-namespace",
        Text,
        "default",
        "the kubernetes service is always in the namespace default",
    )
    .deprecated(),
    IgnoredFlag::new(
        "storage-media-type",
        Choice(&["", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]),
        "application/vnd.kubernetes.protobuf",
        "objects are stored as JSON",
    ),
    IgnoredFlag::new("watch-cache", Bool, "true", MEMORY),
    IgnoredFlag::new("watch-cache-sizes", List, "", MEMORY),
];
