//! The ignored flags that several components share.

use super::ignored::IgnoredFlag;
use super::value::Type::{Bool, Networks, Text};

pub const NO_CLOUD: &str = "there is no cloud provider code";

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
pub const IGNORED: &[IgnoredFlag] =
    &[IgnoredFlag::new("permit-address-sharing", Bool, "false", "SO_REUSEADDR is always set")];
