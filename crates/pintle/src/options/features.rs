//! The `--feature-gates` option.

use super::gates::{
    self, CONTROLLER_GATES, GROUPS, Gate, SCHEDULER_CONFIG_GATES, SCHEDULER_GATES, SERVER_GATES,
};
use super::{ConfigErrors, parse_bool};
use apiserver::{Gates, gates::FeatureGate};
use clap::Args;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Feature gates")]
pub struct Features {
    /// Feature gates to enable or disable, comma-separated: APISelfSubjectReview=true. AllAlpha and AllBeta set all
    /// gates of that stage that are not named
    #[arg(long, value_name = "NAME=BOOL")]
    pub feature_gates: Vec<String>,
}

const OPTION: &str = "--feature-gates";

/// The values of all feature gates.
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl Features {
    /// Parses the values of the flag in order. A named gate is set; a group sets the gates of its stage that are not
    /// set yet.
    pub fn read(&self, errors: &mut ConfigErrors) -> FeatureGates {
        let mut values = BTreeMap::new();
        for value in &self.feature_gates {
            let settings = pairs(value, errors);
            for (name, open) in &settings {
                match gates::all().find(|gate| gate.name == name) {
                    None => errors.add(OPTION, format!("unrecognized feature gate: {name}")),
                    Some(gate) if gate.locked && gate.open != *open => {
                        let why = format!(
                            "cannot set feature gate {name} to {open}, feature is locked to {}",
                            gate.open
                        );
                        errors.add(OPTION, why);
                    }
                    Some(gate) => drop(values.insert(gate.name, *open)),
                }
            }
            for (group, stage) in GROUPS {
                let Some((_, open)) = settings.iter().rev().find(|(name, _)| name == group) else { continue };
                for gate in gates::all().filter(|gate| gate.stage == stage) {
                    values.entry(gate.name).or_insert(*open);
                }
            }
            for warning in warnings(OPTION, &settings) {
                tracing::warn!("{warning}");
            }
        }
        FeatureGates(values)
    }
}

/// The settings in one value of the flag.
fn pairs(value: &str, errors: &mut ConfigErrors) -> Vec<(String, bool)> {
    let mut read: Vec<(String, bool)> = Vec::new();
    for pair in value.split(',').filter(|pair| !pair.is_empty()) {
        let Some((name, text)) = pair.split_once('=') else {
            errors.add(OPTION, format!("missing bool value for {}", pair.trim()));
            continue;
        };
        let (name, text) = (name.trim(), text.trim());
        match parse_bool(text) {
            Some(open) => read.push((names::feature_gate(name).to_owned(), open)),
            None => errors.add(OPTION, format!("invalid value of {name}={text}: must be true or false")),
        }
    }
    read
}

/// Warnings of gates without effect and of gates that will be removed. `source` is where they are set.
pub fn warnings(source: &str, settings: &[(String, bool)]) -> Vec<String> {
    let find = |name: &str| gates::all().find(|gate| gate.name == names::feature_gate(name));
    let mut warnings = Vec::new();
    for (name, open) in settings {
        let Some(gate) = find(name).filter(|gate| !gate.locked) else { continue };
        if gate.stage == "ga" {
            warnings.push(format!(
                "{source}: {name}={open}: the feature is generally available and the gate will be removed"
            ));
        }
        if gate.open != *open && gates::effect(gate.name).is_none() {
            match gates::why_without_effect(gate.name) {
                Some(why) => warnings.push(format!("{source}: {name}={open} has no effect: {why}")),
                // the warning above covers it
                None if gate.stage == "ga" => {}
                None => warnings
                    .push(format!("{source}: {name}={open} has no effect: the feature is not implemented")),
            }
        }
    }
    warnings
}

impl FeatureGates {
    pub fn is_open(&self, gate: &Gate) -> bool {
        self.0.get(gate.name).copied().unwrap_or(gate.open)
    }

    /// Whether the gate of a name is open.
    pub fn is_named_open(&self, name: &str) -> bool {
        gates::all().any(|gate| gate.name == name && self.is_open(&gate))
    }

    /// The gates of kinds and fields that differ from their defaults: the enabled and the disabled ones.
    pub fn kind_gates(&self) -> (Vec<String>, Vec<String>) {
        let differ =
            gates::all().filter(|gate| gates::guards_kinds(gate.name) && self.is_open(gate) != gate.open);
        let (opened, closed): (Vec<_>, Vec<_>) = differ.partition(|gate| !gate.open);
        let names = |gates: Vec<Gate>| gates.into_iter().map(|gate| gate.name.to_owned()).collect();
        (names(opened), names(closed))
    }

    /// The gates of the control loops.
    pub fn controller_gates(&self) -> controllers::gates::Gates {
        let mut gates = controllers::gates::Gates::default();
        for gate in gates::all() {
            if let Some((_, _, field)) = CONTROLLER_GATES.iter().find(|(name, ..)| *name == gate.name) {
                *field(&mut gates) = self.is_open(&gate);
            }
        }
        gates
    }

    /// The gates of the scheduler.
    pub fn scheduler_features(&self) -> scheduler::framework::Features {
        let mut features = scheduler::framework::Features::default();
        for gate in gates::all() {
            if let Some((_, field)) = SCHEDULER_GATES.iter().find(|(name, _)| *name == gate.name) {
                *field(&mut features) = self.is_open(&gate);
            }
        }
        features
    }

    /// The gates of the scheduler's configuration.
    pub fn scheduler_config_gates(&self) -> scheduler::config::Gates {
        let mut config_gates = scheduler::config::Gates::default();
        for gate in gates::all() {
            if let Some((_, _, field)) = SCHEDULER_CONFIG_GATES.iter().find(|(name, ..)| *name == gate.name) {
                *field(&mut config_gates) = self.is_open(&gate);
            }
        }
        config_gates
    }

    /// The gates of the API server.
    pub fn server_gates(&self) -> Gates {
        let mut gates = Gates::default();
        for gate in gates::all() {
            let open = self.is_open(&gate);
            if let Some((_, _, field)) = SERVER_GATES.iter().find(|(name, ..)| *name == gate.name) {
                *field(&mut gates) = open;
            }
            gates.all.push(FeatureGate { name: gate.name, stage: gate.stage, open });
        }
        gates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Result<FeatureGates, String> {
        let mut errors = ConfigErrors::default();
        let features = Features { feature_gates: values.iter().map(|it| (*it).to_owned()).collect() };
        let values = features.read(&mut errors);
        errors.check().map(|()| values).map_err(|why| why.to_string())
    }

    /// Of the gates before kinds, which few are enough for.
    fn opened(values: &[&str]) -> Vec<String> {
        let (all, _) = read(values).unwrap().kind_gates();
        all.into_iter().filter(|name| name == "APISelfSubjectReview").collect()
    }

    #[test]
    fn gates_enable_their_features() {
        let review = vec!["APISelfSubjectReview".to_owned()];
        assert_eq!(opened(&["APISelfSubjectReview=true"]), review);
        assert_eq!(opened(&["AllAlpha=true"]), review);
        assert_eq!(opened(&["APISelfSubjectReview=false,AllAlpha=true"]), [""; 0]);
        assert_eq!(opened(&["AppArmor=false,CPUManager=true, AllBeta=f"]), [""; 0]);
        let gates = read(&["OpenAPIV3=false,RemainingItemCount=0"]).unwrap().server_gates();
        assert!(
            !gates.openapi_v3
                && !gates.remaining_item_count
                && gates.list_chunking
                && gates.priority_and_fairness
        );
        let (_, closed) = read(&["CronJobTimeZone=false,JobPodFailurePolicy=true"]).unwrap().kind_gates();
        assert_eq!(closed, ["CronJobTimeZone"]);
        assert!(!read(&["AllBeta=false,OpenAPIV3=true"]).unwrap().server_gates().list_chunking);
        assert_eq!(Gates { all: Vec::new(), ..read(&[]).unwrap().server_gates() }, Gates::default());
    }

    #[test]
    fn single_gates_take_precedence_over_groups() {
        let named = ["APISelfSubjectReview=false", "AllAlpha=true"];
        assert_eq!(opened(&named), [""; 0]);
        // a group counts for those that are undecided, so the second time there are none
        assert_eq!(opened(&["AllAlpha=true", "AllAlpha=false"]), ["APISelfSubjectReview"]);
        assert_eq!(opened(&["AllAlpha=true,AllAlpha=false"]), [""; 0]);
        assert_eq!(opened(&["AllAlpha=true", "APISelfSubjectReview=false"]), [""; 0]);
    }

    #[test]
    fn every_mistake_is_reported() {
        let message = read(&["Nope=true,CPUManager=false,AppArmor,AllAlpha=x"]).err().unwrap();
        for part in [
            "unrecognized feature gate: Nope",
            "cannot set feature gate CPUManager to false, feature is locked to true",
            "missing bool value for AppArmor",
            "invalid value of AllAlpha=x",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(gates::all().count(), 147);
    }

    #[test]
    fn gates_without_effect_are_warned_of() {
        let warned = |name: &str, open| warnings("featureGates", &[(name.to_owned(), open)]);
        assert_eq!(warned("NodeSwap", true), [""; 0]);
        assert_eq!(
            warned("CSIVolumeHealth", true),
            ["featureGates: CSIVolumeHealth=true has no effect: the node agent does not have the feature"]
        );
        // it has its default
        assert_eq!(warned("CSIVolumeHealth", false), [""; 0]);
    }

    #[test]
    fn a_gate_may_have_the_name_of_the_specification() {
        let gates = read(&["RotateServerCertificate=false"]).unwrap();
        assert!(!gates.is_named_open("RotateKubeletServerCertificate"));
    }

    #[test]
    fn implemented_gates_are_declared() {
        let known = |name: &str| gates::all().find(|gate| gate.name == name);
        let names = SERVER_GATES.iter().map(|it| it.0).chain(CONTROLLER_GATES.iter().map(|it| it.0));
        for name in names {
            assert!(known(name).is_some(), "{name}");
            assert_ne!(gates::effect(name), Some(""), "{name}");
        }
        for (name, _) in nodeagent::configuration::AGENT_GATES {
            assert!(known(name).is_some(), "{name}");
            assert_eq!(gates::why_without_effect(name), None, "{name}");
        }
        for gate in kinds::gates::OF_KINDS {
            let (open, locked) = known(gate.name).map(|it| (it.open, it.locked)).unwrap();
            assert_eq!((open, locked), (gate.open, false), "{}", gate.name);
        }
    }

    #[test]
    fn loops_receive_their_gates() {
        assert_eq!(read(&[]).unwrap().controller_gates(), controllers::gates::Gates::default());
        let gates = read(&["PodDeletionCost=false,TopologyAwareHints=false"]).unwrap().controller_gates();
        assert!(!gates.deletion_cost && !gates.hints && gates.ready_pods);
    }
}
