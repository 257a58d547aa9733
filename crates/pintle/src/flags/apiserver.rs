//! What the API server can be told without effect, and where it differs from what all components together do.

use super::every::NO_CLOUD;
use super::idle::Idle;
use super::value::Type::{Bool, Choice, Duration, Int, List, Networks, Text, Uint};

/// As a component among others the server does what upstream's does where nothing is said.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("authorization-mode", "AlwaysAllow"),
    ("bind-address", "0.0.0.0"),
    ("service-cluster-ip-range", "10.0.0.0/24"),
];

const COUNTED: &str = "numbers about the store are read when somebody asks for them";
const MEMORY: &str = "reads are always answered from memory, which is never behind the store";
const NO_AGENTS: &str = "requests are not passed on to the agents of nodes yet";

pub const IDLE: &[Idle] = &[
    Idle::new("apiserver-count", Int, "1", "the servers of a store tell each other that they are there")
        .deprecated(),
    Idle::new("cloud-provider-gce-l7lb-src-cidrs", Networks, "130.211.0.0/22,35.191.0.0/16", NO_CLOUD),
    Idle::new("contention-profiling", Bool, "false", "no request waits for a lock that reads take"),
    Idle::new("default-watch-cache-size", Int, "100", "how much is remembered follows from time and size")
        .deprecated(),
    Idle::new("enable-logs-handler", Bool, "true", "files of the log are not served").deprecated(),
    Idle::new("etcd-count-metric-poll-period", Duration, "1m0s", COUNTED),
    Idle::new("kubelet-certificate-authority", Text, "", NO_AGENTS),
    Idle::new("kubelet-client-certificate", Text, "", NO_AGENTS),
    Idle::new("kubelet-client-key", Text, "", NO_AGENTS),
    Idle::new("kubelet-port", Uint, "10250", NO_AGENTS).deprecated(),
    Idle::new(
        "kubelet-preferred-address-types",
        List,
        "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP",
        NO_AGENTS,
    ),
    Idle::new("kubelet-read-only-port", Uint, "10255", NO_AGENTS).deprecated(),
    Idle::new("kubelet-timeout", Duration, "5s", NO_AGENTS),
    Idle::new("master-service-namespace", Text, "default", "the server's own service is always there")
        .deprecated(),
    Idle::new(
        "storage-media-type",
        Choice(&["", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]),
        "application/vnd.kubernetes.protobuf",
        "objects are kept as the JSON that they are answered with",
    ),
    Idle::new("watch-cache", Bool, "true", MEMORY),
    Idle::new("watch-cache-sizes", List, "", MEMORY),
];
