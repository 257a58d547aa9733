//! The ignored flags and the defaults of `pintle scheduler`.

use super::ignored::IgnoredFlag;
use super::value::Type::Int;

pub const DEFAULTS: &[(&str, &str)] = &[
    ("authentication-tolerate-lookup-failure", "true"),
    ("leader-elect-resource-name", "kube-scheduler"),
    ("requestheader-extra-headers-prefix", "x-remote-extra-"),
    ("requestheader-group-headers", "x-remote-group"),
    ("requestheader-username-headers", "x-remote-user"),
];

/// Flags that are not deprecated in other components, with their help.
pub const DEPRECATED: &[(&str, &str)] = &[(
    "profiling",
    "Deprecated: set enableProfiling in the file of --config. Serve debug pages below /debug/pprof/ and /debug/flags/",
)];

pub const IGNORED: &[IgnoredFlag] = &[IgnoredFlag::new(
    "http2-max-streams-per-connection",
    Int,
    "0",
    "this port serves only health checks, metrics and debug pages",
)];
