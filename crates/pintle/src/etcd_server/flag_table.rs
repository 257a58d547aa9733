//! The flags of etcd 3.5, and what each does here.

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Number,
    Text,
    Duration,
}

impl Kind {
    /// The placeholder of a value in help.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Number => "NUMBER",
            Self::Text => "TEXT",
            Self::Duration => "DURATION",
        }
    }
}

/// The effect of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does this.
    Option(&'static str),
    /// A warning says why it does nothing.
    Ignored(&'static str),
    /// An error says why it cannot be used.
    Refused(&'static str),
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct FlagRow {
    pub name: &'static str,
    pub kind: Kind,
    pub effect: Effect,
}

impl FlagRow {
    pub fn description(&self) -> String {
        match self.effect {
            Effect::Option(text) => text.to_owned(),
            Effect::Ignored(why) => format!("Without effect: {why}"),
            Effect::Refused(why) => format!("Refused: {why}"),
        }
    }
}

const fn option(name: &'static str, kind: Kind, text: &'static str) -> FlagRow {
    FlagRow { name, kind, effect: Effect::Option(text) }
}

const fn ignored(name: &'static str, kind: Kind, why: &'static str) -> FlagRow {
    FlagRow { name, kind, effect: Effect::Ignored(why) }
}

const fn refused(name: &'static str, kind: Kind, why: &'static str) -> FlagRow {
    FlagRow { name, kind, effect: Effect::Refused(why) }
}

const ALONE: &str = "the server is its cluster's only member";
const NO_WAL: &str = "the store is one file without a write-ahead log";
const NO_USERS: &str = "users and roles are not served";
const NO_V2: &str = "the API v2 is not served";
const NO_LISTENER: &str = "there are no peers to listen for";
const NOT_CHECKED: &str = "it would be a check of clients that is not made";
const OWN_LOG: &str = "the log has Pintle's format and goes to standard error";
const NO_PROFILES: &str = "profiles are not served";
const NO_GATEWAY: &str = "the JSON gateway is not served";

/// All flags, in the groups of etcd's help.
pub fn flag_rows() -> &'static [FlagRow] {
    ROWS
}

use Kind::{Bool, Duration, Number, Text};

const ROWS: &[FlagRow] = &[
    option("name", Text, "The name of the member"),
    option("data-dir", Text, "The directory of the data [default: NAME.etcd]"),
    ignored("wal-dir", Text, NO_WAL),
    ignored("snapshot-count", Number, NO_WAL),
    option(
        "heartbeat-interval",
        Number,
        "Milliseconds; with the election timeout, the shortest life of a lease",
    ),
    option("election-timeout", Number, "Milliseconds; a lease lives at least one and a half times as long"),
    ignored("initial-election-tick-advance", Bool, ALONE),
    ignored("listen-peer-urls", Text, NO_LISTENER),
    option("listen-client-urls", Text, "The URLs to serve, comma-separated [default: http://localhost:2379]"),
    option("listen-client-http-urls", Text, "Further URLs to serve"),
    option("listen-metrics-urls", Text, "Further URLs to serve; /metrics and /health are on all of them"),
    ignored("max-snapshots", Number, NO_WAL),
    ignored("max-wals", Number, NO_WAL),
    option("quota-backend-bytes", Number, "The size of the file at which keys are no longer put; 0 is 2 GiB"),
    ignored("backend-bbolt-freelist-type", Text, "the store's file is not one of bbolt"),
    ignored("backend-batch-interval", Duration, "writes that wait share a transaction"),
    ignored("backend-batch-limit", Number, "writes that wait share a transaction"),
    option("max-txn-ops", Number, "The operations of a transaction [default: 128]"),
    option("max-request-bytes", Number, "The size of a request [default: 1572864]"),
    option("max-concurrent-streams", Number, "The calls of a connection at a time"),
    ignored("grpc-keepalive-min-time", Duration, "pings of clients are always answered"),
    option("grpc-keepalive-interval", Duration, "The silence after which a client is pinged [default: 2h]"),
    option("grpc-keepalive-timeout", Duration, "How long a client may take to answer a ping [default: 20s]"),
    ignored("socket-reuse-port", Bool, "a port has one server"),
    ignored("socket-reuse-address", Bool, "it is always set"),
    ignored("enable-grpc-gateway", Bool, NO_GATEWAY),
    option("initial-advertise-peer-urls", Text, "The URLs of the member for peers, in its description"),
    option("initial-cluster", Text, "The members of the cluster, NAME=URL: one"),
    ignored("initial-cluster-state", Text, ALONE),
    ignored("initial-cluster-token", Text, ALONE),
    option("advertise-client-urls", Text, "The URLs of the member for clients, in its description"),
    refused("discovery", Text, ALONE),
    refused("discovery-srv", Text, ALONE),
    ignored("discovery-srv-name", Text, ALONE),
    ignored("discovery-fallback", Text, ALONE),
    ignored("discovery-proxy", Text, ALONE),
    ignored("strict-reconfig-check", Bool, ALONE),
    ignored("pre-vote", Bool, ALONE),
    option(
        "auto-compaction-retention",
        Text,
        "The history that is kept: a time such as 1h, or a number of revisions",
    ),
    option("auto-compaction-mode", Text, "Whether that is a time (periodic) or a number (revision)"),
    refused("enable-v2", Bool, NO_V2),
    refused("experimental-enable-v2v3", Text, NO_V2),
    ignored("v2-deprecation", Text, NO_V2),
    option("cert-file", Text, "The certificate of the server for clients, in PEM"),
    option("key-file", Text, "Its key"),
    option("client-cert-auth", Bool, "Clients must have a certificate of --trusted-ca-file"),
    option("trusted-ca-file", Text, "The authorities of client certificates, in PEM"),
    ignored("client-cert-file", Text, "the server is its own client in memory"),
    ignored("client-key-file", Text, "the server is its own client in memory"),
    refused("client-crl-file", Text, NOT_CHECKED),
    refused("client-cert-allowed-hostname", Text, NOT_CHECKED),
    refused("auto-tls", Bool, "the certificate must be given: --cert-file, --key-file"),
    ignored("self-signed-cert-validity", Number, "no certificates are made"),
    ignored("peer-cert-file", Text, NO_LISTENER),
    ignored("peer-key-file", Text, NO_LISTENER),
    ignored("peer-client-cert-auth", Bool, NO_LISTENER),
    ignored("peer-client-cert-file", Text, NO_LISTENER),
    ignored("peer-client-key-file", Text, NO_LISTENER),
    ignored("peer-trusted-ca-file", Text, NO_LISTENER),
    ignored("peer-cert-allowed-cn", Text, NO_LISTENER),
    ignored("peer-cert-allowed-hostname", Text, NO_LISTENER),
    ignored("peer-auto-tls", Bool, NO_LISTENER),
    ignored("peer-crl-file", Text, NO_LISTENER),
    ignored("peer-skip-client-san-verification", Bool, NO_LISTENER),
    ignored("cipher-suites", Text, "those of TLS 1.2 and 1.3 that are safe are permitted"),
    ignored("tls-min-version", Text, "TLS 1.2 and 1.3 are permitted"),
    ignored("tls-max-version", Text, "TLS 1.2 and 1.3 are permitted"),
    refused("cors", Text, NO_GATEWAY),
    refused("host-whitelist", Text, NOT_CHECKED),
    ignored("auth-token", Text, NO_USERS),
    ignored("auth-token-ttl", Number, NO_USERS),
    ignored("bcrypt-cost", Number, NO_USERS),
    ignored("enable-pprof", Bool, NO_PROFILES),
    ignored("metrics", Text, "all metrics are always served"),
    ignored("logger", Text, OWN_LOG),
    ignored("log-outputs", Text, OWN_LOG),
    option("log-level", Text, "debug, info, warn, error, panic or fatal [default: info]"),
    ignored("log-format", Text, OWN_LOG),
    ignored("log-package-levels", Text, OWN_LOG),
    option("debug", Bool, "The same as --log-level debug"),
    ignored("enable-log-rotation", Bool, OWN_LOG),
    ignored("log-rotation-config-json", Text, OWN_LOG),
    refused("config-file", Text, "give the flags on the command line or in the environment (ETCD_NAME, ...)"),
    refused("proxy", Text, "the server is no proxy"),
    refused("gateway", Text, "the server is no proxy"),
    ignored("force-new-cluster", Bool, ALONE),
    option(
        "unsafe-no-fsync",
        Bool,
        "Writes are not synced: a crash of the machine may lose or damage the data",
    ),
    option(
        "experimental-watch-progress-notify-interval",
        Duration,
        "How often watches without changes hear how far they have come [default: 10m]",
    ),
    ignored("experimental-initial-corrupt-check", Bool, "the file is always checked at the start"),
    ignored("experimental-corrupt-check-time", Duration, ALONE),
    ignored("experimental-compact-hash-check-enabled", Bool, ALONE),
    ignored("experimental-compact-hash-check-time", Duration, ALONE),
    ignored("experimental-enable-lease-checkpoint", Bool, "a lease begins anew after a restart"),
    ignored("experimental-enable-lease-checkpoint-persist", Bool, "a lease begins anew after a restart"),
    ignored("experimental-compaction-batch-limit", Number, "history goes in small steps"),
    ignored("experimental-compaction-sleep-interval", Duration, "history goes in small steps"),
    ignored("experimental-peer-skip-client-san-verification", Bool, NO_LISTENER),
    ignored("experimental-warning-apply-duration", Duration, "there are no such warnings"),
    ignored("experimental-warning-unary-request-duration", Duration, "there are no such warnings"),
    ignored("experimental-backend-bbolt-freelist-type", Text, "the store's file is not one of bbolt"),
    ignored("experimental-bootstrap-defrag-threshold-megabytes", Number, "etcdctl defrag does it"),
    ignored("experimental-memory-mlock", Bool, "memory is not locked"),
    ignored("experimental-txn-mode-write-with-shared-buffer", Bool, "reads never wait for writes"),
    ignored("experimental-stop-grpc-service-on-defrag", Bool, "requests wait meanwhile"),
    ignored("experimental-enable-distributed-tracing", Bool, "spans are not exported"),
    ignored("experimental-distributed-tracing-address", Text, "spans are not exported"),
    ignored("experimental-distributed-tracing-service-name", Text, "spans are not exported"),
    ignored("experimental-distributed-tracing-instance-id", Text, "spans are not exported"),
    ignored("experimental-distributed-tracing-sampling-rate", Number, "spans are not exported"),
    ignored("experimental-max-learners", Number, ALONE),
    ignored("experimental-wait-cluster-ready-timeout", Duration, ALONE),
    ignored("experimental-snapshot-catchup-entries", Number, ALONE),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_declared_once() {
        let mut names: Vec<_> = flag_rows().iter().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
