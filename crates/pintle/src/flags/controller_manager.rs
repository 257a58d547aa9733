//! What the controller manager can be told without effect, and where it differs from what is declared for all.

use super::every::NO_CLOUD;
use super::idle::Idle;
use super::value::Type::{Bool, Duration, Int, List, Text};

pub const DEFAULTS: &[(&str, &str)] = &[
    ("requestheader-extra-headers-prefix", "x-remote-extra-"),
    ("requestheader-group-headers", "x-remote-group"),
    ("requestheader-username-headers", "x-remote-user"),
];

const NO_PLUGINS: &str = "there is no code for particular volumes in the manager: drivers and provisioners beside it make, remove and recycle them";
const NO_HOST_PATHS: &str = "no volumes are made on the manager's own disk: run a provisioner instead";
const FOLLOWED: &str = "attachments are followed as they change, so that there is nothing to compare";
const OLD_DELAY: &str = "how long is waited is said by behaviors, and by the stabilization";
const BY_TAINTS: &str = "pods are sent away by taints, for as long as they bear them, and by nothing else";
const IS_CHOSEN: &str = "--controllers=*,-garbagecollector runs the manager without the collector";
const NO_MIGRATION: &str = "there is no cloud controller manager that loops could move to";
const NO_PROFILES: &str = "what waits for a lock is not counted";

pub const IDLE: &[Idle] = &[
    Idle::new("allow-untagged-cloud", Bool, "false", NO_CLOUD).deprecated(),
    Idle::new("attach-detach-reconcile-sync-period", Duration, "1m0s", FOLLOWED),
    Idle::new("cluster-name", Text, "kubernetes", NO_CLOUD),
    Idle::new("concurrent-service-syncs", Int, "1", NO_CLOUD),
    Idle::new("configure-cloud-routes", Bool, "true", NO_CLOUD),
    Idle::new("contention-profiling", Bool, "false", NO_PROFILES),
    Idle::new("disable-attach-detach-reconcile-sync", Bool, "false", FOLLOWED),
    Idle::new("enable-garbage-collector", Bool, "true", IS_CHOSEN),
    Idle::new("enable-hostpath-provisioner", Bool, "false", NO_HOST_PATHS),
    Idle::new("enable-leader-migration", Bool, "false", NO_MIGRATION),
    Idle::new("enable-taint-manager", Bool, "true", BY_TAINTS).deprecated(),
    Idle::new("external-cloud-volume-plugin", Text, "", NO_CLOUD),
    Idle::new(
        "flex-volume-plugin-dir",
        Text,
        "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
        NO_PLUGINS,
    ),
    Idle::new("horizontal-pod-autoscaler-downscale-delay", Duration, "5m0s", OLD_DELAY).deprecated(),
    Idle::new("horizontal-pod-autoscaler-upscale-delay", Duration, "3m0s", OLD_DELAY).deprecated(),
    Idle::new("http2-max-streams-per-connection", Int, "0", "nobody asks for much at this port"),
    Idle::new(
        "kube-api-content-type",
        Text,
        "application/vnd.kubernetes.protobuf",
        "the API server is asked in JSON",
    ),
    Idle::new("leader-migration-config", Text, "", NO_MIGRATION),
    Idle::new(
        "min-resync-period",
        Duration,
        "12h0m0s",
        "what was seen is not looked at again without a reason",
    ),
    Idle::new("node-sync-period", Duration, "0s", NO_CLOUD).deprecated(),
    Idle::new("pod-eviction-timeout", Duration, "5m0s", BY_TAINTS).deprecated(),
    Idle::new("pv-recycler-increment-timeout-nfs", Int, "30", NO_PLUGINS),
    Idle::new("pv-recycler-minimum-timeout-hostpath", Int, "60", NO_PLUGINS),
    Idle::new("pv-recycler-minimum-timeout-nfs", Int, "300", NO_PLUGINS),
    Idle::new("pv-recycler-pod-template-filepath-hostpath", Text, "", NO_PLUGINS),
    Idle::new("pv-recycler-pod-template-filepath-nfs", Text, "", NO_PLUGINS),
    Idle::new("pv-recycler-timeout-increment-hostpath", Int, "30", NO_PLUGINS),
    Idle::new("route-reconciliation-period", Duration, "10s", NO_CLOUD),
    Idle::new("volume-host-allow-local-loopback", Bool, "true", NO_PLUGINS),
    Idle::new("volume-host-cidr-denylist", List, "", NO_PLUGINS),
];
