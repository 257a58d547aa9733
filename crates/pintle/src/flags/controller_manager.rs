//! The ignored flags and the defaults of `pintle controller-manager`.

use super::ignored::IgnoredFlag;
use super::shared::NO_CLOUD;
use super::value::Type::{Bool, Duration, Int, List, Text};

pub const DEFAULTS: &[(&str, &str)] = &[
    ("requestheader-extra-headers-prefix", "x-remote-extra-"),
    ("requestheader-group-headers", "x-remote-group"),
    ("requestheader-username-headers", "x-remote-user"),
];

const NO_PLUGINS: &str = "the manager has no volume plugins: CSI drivers and external provisioners create, delete and recycle volumes";
const NO_HOST_PATHS: &str = "there is no host path provisioner: run an external provisioner";
const OLD_DELAY: &str = "the delay follows from the autoscaler's behavior and the stabilization window";
const BY_TAINTS: &str = "pods are evicted only by taints and tolerations";
const IS_CHOSEN: &str = "use --controllers=*,-garbagecollector to turn the garbage collector off";
const NO_MIGRATION: &str = "there is no cloud controller manager to migrate controllers to";
const NO_PROFILES: &str = "there is no lock contention profile";

pub const IGNORED: &[IgnoredFlag] = &[
    IgnoredFlag::new("allow-untagged-cloud", Bool, "false", NO_CLOUD).deprecated(),
    IgnoredFlag::new("cluster-name", Text, "kubernetes", NO_CLOUD),
    IgnoredFlag::new("concurrent-service-syncs", Int, "1", NO_CLOUD),
    IgnoredFlag::new("configure-cloud-routes", Bool, "true", NO_CLOUD),
    IgnoredFlag::new("contention-profiling", Bool, "false", NO_PROFILES),
    IgnoredFlag::new("enable-garbage-collector", Bool, "true", IS_CHOSEN),
    IgnoredFlag::new("enable-hostpath-provisioner", Bool, "false", NO_HOST_PATHS),
    IgnoredFlag::new("enable-leader-migration", Bool, "false", NO_MIGRATION),
    IgnoredFlag::new("enable-taint-manager", Bool, "true", BY_TAINTS).deprecated(),
    IgnoredFlag::new("external-cloud-volume-plugin", Text, "", NO_CLOUD),
    IgnoredFlag::new("horizontal-pod-autoscaler-downscale-delay", Duration, "5m0s", OLD_DELAY).deprecated(),
    IgnoredFlag::new("horizontal-pod-autoscaler-upscale-delay", Duration, "3m0s", OLD_DELAY).deprecated(),
    IgnoredFlag::new(
        "http2-max-streams-per-connection",
        Int,
        "0",
        "this port serves only health checks, metrics and debug pages",
    ),
    IgnoredFlag::new(
        "kube-api-content-type",
        Text,
        "application/vnd.kubernetes.protobuf",
        "requests to the API server use JSON",
    ),
    IgnoredFlag::new("leader-migration-config", Text, "", NO_MIGRATION),
    IgnoredFlag::new("min-resync-period", Duration, "12h0m0s", "objects are not resynced periodically"),
    IgnoredFlag::new("node-sync-period", Duration, "0s", NO_CLOUD).deprecated(),
    IgnoredFlag::new("pod-eviction-timeout", Duration, "5m0s", BY_TAINTS).deprecated(),
    IgnoredFlag::new("pv-recycler-increment-timeout-nfs", Int, "30", NO_PLUGINS),
    IgnoredFlag::new("pv-recycler-minimum-timeout-hostpath", Int, "60", NO_PLUGINS),
    IgnoredFlag::new("pv-recycler-minimum-timeout-nfs", Int, "300", NO_PLUGINS),
    IgnoredFlag::new("pv-recycler-pod-template-filepath-hostpath", Text, "", NO_PLUGINS),
    IgnoredFlag::new("pv-recycler-pod-template-filepath-nfs", Text, "", NO_PLUGINS),
    IgnoredFlag::new("pv-recycler-timeout-increment-hostpath", Int, "30", NO_PLUGINS),
    IgnoredFlag::new("route-reconciliation-period", Duration, "10s", NO_CLOUD),
    IgnoredFlag::new("volume-host-allow-local-loopback", Bool, "true", NO_PLUGINS),
    IgnoredFlag::new("volume-host-cidr-denylist", List, "", NO_PLUGINS),
];
