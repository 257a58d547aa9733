//! Feature gates of the agent.

use super::error::StartError;
use std::collections::BTreeMap;

/// A gate that exists.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    pub name: &'static str,
    pub is_open: bool,
    /// `alpha`, `beta` or `ga`.
    pub stage: &'static str,
    pub is_locked: bool,
}

/// The values of all gates.
#[derive(Debug, Clone, Default)]
pub struct Gates(BTreeMap<String, bool>);

const CONTEXT: &str = "failed to set feature gates from initial flags-based config";

impl Gates {
    /// Sets gates by name; `AllAlpha` and `AllBeta` set the others of that stage.
    pub fn new(known: &[Gate], settings: &[(String, bool)]) -> Result<Self, StartError> {
        let mut values: BTreeMap<String, bool> =
            known.iter().map(|gate| (gate.name.to_owned(), gate.is_open)).collect();
        for (group, stage) in [("AllAlpha", "alpha"), ("AllBeta", "beta")] {
            let Some((_, is_open)) = settings.iter().find(|(name, _)| name == group) else { continue };
            for gate in known.iter().filter(|gate| gate.stage == stage && !gate.is_locked) {
                values.insert(gate.name.to_owned(), *is_open);
            }
        }
        for (name, is_open) in settings {
            if matches!(name.as_str(), "AllAlpha" | "AllBeta") {
                continue;
            }
            let Some(gate) = known.iter().find(|gate| gate.name == name) else {
                return Err(StartError::new(format!("{CONTEXT}: unrecognized feature gate: {name}")));
            };
            if gate.is_locked && gate.is_open != *is_open {
                let locked = gate.is_open;
                return Err(StartError::new(format!(
                    "{CONTEXT}: cannot set feature gate {name} to {is_open}, feature is locked to {locked}"
                )));
            }
            values.insert(name.clone(), *is_open);
        }
        Ok(Gates(values))
    }

    pub fn is_open(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or(false)
    }
}
