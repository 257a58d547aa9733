//! What every component can be told without effect.

use super::idle::Idle;
use super::value::Type::{Bool, Duration, Networks, Quantity, Text};

pub const NO_CLOUD: &str = "there is no code for particular clouds";
const NOT_BUFFERED: &str = "lines of the log are written one by one, and at once";
const ONE_STREAM: &str = "the log goes to standard error";

pub const IDLE: &[Idle] = &[
    Idle::new("cloud-config", Text, "", NO_CLOUD),
    Idle::new("cloud-provider", Text, "", NO_CLOUD),
    Idle::new(
        "cloud-provider-gce-lb-src-cidrs",
        Networks,
        "130.211.0.0/22,209.85.152.0/22,209.85.204.0/22,35.191.0.0/16",
        NO_CLOUD,
    )
    .deprecated(),
    Idle::new("log-flush-frequency", Duration, "5s", NOT_BUFFERED),
    Idle::new("log-json-info-buffer-size", Quantity, "0", NOT_BUFFERED),
    Idle::new("log-json-split-stream", Bool, "false", ONE_STREAM),
    Idle::new("permit-address-sharing", Bool, "false", "an address that lingers is always taken over"),
];
