//! The failures of a simulation: requests and watches that fail, components that crash, nodes that fall silent.

use super::choice::Choice;
use serde_json::{Value, json};
use std::time::Duration;

/// A failure.
#[derive(Debug, Clone)]
pub enum Failure {
    /// Rules of faults for the requests of all components, in place of those before; none clears them.
    Faults(Option<Value>),
    /// The component with this number crashes at its poll of this number, and stays down for a while.
    Crash { component: usize, polls: u64, down_for: Duration },
    /// All components crash, as when their machine restarts.
    Blackout { down_for: Duration },
    /// A node falls silent for a while.
    Silence { node: u64, length: Duration },
    /// A node loses its containers and images.
    DiskLoss { node: u64 },
    /// A node is taken out of the cluster, and is back after a while, with nothing of its containers.
    Removal { node: u64, length: Duration },
}

/// Draws failures.
pub struct Failures {
    choice: Choice,
    components: usize,
    nodes: u64,
}

impl Failures {
    pub fn new(seed: u64, components: usize, nodes: u64) -> Self {
        Failures { choice: Choice::new(seed), components, nodes }
    }

    /// The next failure, if any.
    pub fn next(&self) -> Option<Failure> {
        let choice = &self.choice;
        match choice.below(100) {
            0..=34 => Some(Failure::Crash {
                component: usize::try_from(choice.below(self.components as u64)).unwrap_or(0),
                // as likely in the first steps as in the next thousand
                polls: choice.between(1, 1 << choice.between(1, 11)),
                down_for: Duration::from_millis(choice.between(1, 1 << choice.between(1, 16))),
            }),
            35..=44 => Some(Failure::Faults(Some(self.rules()))),
            45..=54 => Some(Failure::Faults(None)),
            55..=59 => Some(Failure::Silence {
                node: choice.below(self.nodes),
                length: Duration::from_secs(choice.between(5, 400)),
            }),
            60..=61 => Some(Failure::DiskLoss { node: choice.below(self.nodes) }),
            64 => Some(Failure::Blackout { down_for: Duration::from_millis(choice.between(1, 20_000)) }),
            62..=63 => Some(Failure::Removal {
                node: choice.below(self.nodes),
                length: Duration::from_secs(choice.between(1, 300)),
            }),
            _ => None,
        }
    }

    fn rules(&self) -> Value {
        let choice = &self.choice;
        let writes = json!(["create", "update", "patch", "delete"]);
        let rate = |most: u64| choice.between(1, most) as f64 / 100.0;
        let mut rules = Vec::new();
        for _ in 0..choice.between(1, 4) {
            rules.push(match choice.below(7) {
                0 => json!({"verbs": ["update", "patch"], "status": 409, "rate": rate(30)}),
                1 => json!({"status": *choice.pick(&[500, 503, 504]), "rate": rate(15)}),
                2 => json!({"verbs": writes, "status": 429, "rate": rate(20)}),
                3 => json!({"verbs": writes, "cut": "Response", "rate": rate(20)}),
                4 => json!({"verbs": writes, "cut": "Request", "rate": rate(20)}),
                5 => json!({"delay": format!("{}ms", choice.between(1, 8000)), "rate": rate(20)}),
                _ => json!({
                    "watch": {"afterEvents": choice.between(1, 30), "end": *choice.pick(&["Close", "Expired", "Cut"])},
                    "rate": rate(60),
                }),
            });
        }
        for rule in &mut rules {
            rule["components"] = json!(true);
            // the requests of the simulation's own client meet none
            rule["users"] = json!(["system:*"]);
        }
        json!({"seed": choice.number() >> 12, "rules": rules})
    }
}
