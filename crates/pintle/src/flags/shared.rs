//! The ignored flags that several components share.

use super::ignored::IgnoredFlag;
use super::value::Type::{Bool, Duration, Networks, Quantity, Text};

pub const NO_CLOUD: &str = "there is no cloud provider code";
const NOT_BUFFERED: &str = "the log is not buffered";
const ONE_STREAM: &str = "the log has one stream, standard error";

/// The flags of components that call cloud providers.
pub const CLOUD: &[IgnoredFlag] = &[
    IgnoredFlag::new("cloud-config", Text, "", NO_CLOUD),
    IgnoredFlag::new("cloud-provider", Text, "", NO_CLOUD),
    IgnoredFlag::new(
        "cloud-provider-gce-lb-src-cidrs",
        Networks,
        "130.211.0.0/22,209.85.152.0/22,209.85.204.0/22,35.191.0.0/16",
        NO_CLOUD,
    )
    .deprecated(),
];

/// The flags of all components.
pub const IGNORED: &[IgnoredFlag] = &[
    IgnoredFlag::new("log-flush-frequency", Duration, "5s", NOT_BUFFERED),
    IgnoredFlag::new("log-json-info-buffer-size", Quantity, "0", NOT_BUFFERED),
    IgnoredFlag::new("log-json-split-stream", Bool, "false", ONE_STREAM),
    IgnoredFlag::new("permit-address-sharing", Bool, "false", "SO_REUSEADDR is always set"),
];
