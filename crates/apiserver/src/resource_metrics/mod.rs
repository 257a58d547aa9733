//! The resource metrics API: usage of nodes and pods, from the summaries of their agents.
//!
//! | module | what it is |
//! |---|---|
//! | `summary` | the parts of an agent's summary that are used; pure |
//! | `collector` | summaries of nodes, requested when they are needed and kept for a while |
//! | `node_metrics`, `pod_metrics` | the virtual resources |
//!
//! Invariants: a node that does not answer in time is left out, and delays no request by more than that time; an
//! agent gets at most one request in [`TTL`](collector::TTL), however many clients there are. The API is served where a
//! component asks for it; an APIService with a service takes its place like that of any other version.

mod collector;
mod node_metrics;
mod pod_metrics;
mod summary;

pub use collector::Collector;
pub(crate) use node_metrics::NodeMetrics;
pub(crate) use pod_metrics::PodMetrics;

use schema::quantity::Quantity;
use schema::{Map, Value};
use std::time::Duration;
use summary::Usage;

/// The feature gate of the kinds: it is open where they are served.
pub const GATE: &str = "ResourceMetrics";

/// The amounts of a usage.
fn amounts(usage: &Usage) -> Value {
    let mut amounts = Map::new();
    amounts.insert("cpu", cores(usage.cpu_nano_cores));
    let bytes = i64::try_from(usage.memory_bytes).unwrap_or(i64::MAX);
    amounts.insert("memory", Quantity::from_bytes(bytes).to_string());
    Value::from(amounts)
}

/// A quantity in the largest unit in which it is whole.
fn cores(nano: u64) -> String {
    const MILLI: u64 = 1_000_000;
    match nano {
        0 => "0".to_owned(),
        nano if nano % MILLI == 0 => {
            Quantity::from_milli(i64::try_from(nano / MILLI).unwrap_or(i64::MAX)).to_string()
        }
        nano if nano % 1000 == 0 => format!("{}u", nano / 1000),
        nano => format!("{nano}n"),
    }
}

/// Metadata, end and length of the time of a measurement.
fn measurement(name: &str, timestamp: &str, window: Duration, now: &str) -> Value {
    let mut object = Value::map();
    object.set(&["metadata", "name"], name);
    object.set(&["metadata", "creationTimestamp"], now);
    object.set(&["timestamp"], timestamp);
    let seconds = i64::try_from(window.as_secs()).unwrap_or(i64::MAX).max(1);
    object.set(&["window"], schema::time::format_duration(seconds.saturating_mul(1_000_000_000)));
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_canonical() {
        let usage = Usage { cpu_nano_cores: 250_000_000, memory_bytes: 3 << 20 };
        let amounts = amounts(&usage);
        assert_eq!((amounts.text(&["cpu"]), amounts.text(&["memory"])), ("250m", "3Mi"));
        let amounts = super::amounts(&Usage { cpu_nano_cores: 1_234_567, memory_bytes: 1500 });
        assert_eq!((amounts.text(&["cpu"]), amounts.text(&["memory"])), ("1234567n", "1500"));
    }
}
