//! Feature gates: parts that can be switched on before they are finished, or off while they are new.

use super::gates::{self, BEHIND, BEHIND_LOOPS, GROUPS, Gate};
use super::{ConfigErrors, truth};
use apiserver::{Gates, gates::Shown};
use clap::Args;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What is switched on")]
pub struct Features {
    /// Feature gates to open or close, with commas between: APISelfSubjectReview=true. AllAlpha and AllBeta stand
    /// for all of that maturity that are not named
    #[arg(long, value_name = "NAME=BOOL")]
    pub feature_gates: Vec<String>,
}

const OPTION: &str = "--feature-gates";

/// What the gates are, once they are decided.
pub struct Decided(BTreeMap<&'static str, bool>);

impl Features {
    /// Takes one value of the flag after the other. Who is named is decided; a group decides for those of its stage
    /// that are not decided by then.
    pub fn read(&self, wrong: &mut ConfigErrors) -> Decided {
        let mut decided = BTreeMap::new();
        for value in &self.feature_gates {
            let asked = pairs(value, wrong);
            for (name, open) in &asked {
                match gates::all().find(|gate| gate.name == name) {
                    None => wrong.add(OPTION, format!("unrecognized feature gate: {name}")),
                    Some(gate) if gate.locked && gate.open != *open => {
                        let why = format!(
                            "cannot set feature gate {name} to {open}, feature is locked to {}",
                            gate.open
                        );
                        wrong.add(OPTION, why);
                    }
                    Some(gate) => drop(decided.insert(gate.name, *open)),
                }
            }
            for (group, stage) in GROUPS {
                let Some((_, open)) = asked.iter().rev().find(|(name, _)| name == group) else { continue };
                for gate in gates::all().filter(|gate| gate.stage == stage) {
                    decided.entry(gate.name).or_insert(*open);
                }
            }
            warn(&asked);
        }
        Decided(decided)
    }
}

/// What one value of the flag says.
fn pairs(value: &str, wrong: &mut ConfigErrors) -> Vec<(String, bool)> {
    let mut read: Vec<(String, bool)> = Vec::new();
    for pair in value.split(',').filter(|pair| !pair.is_empty()) {
        let Some((name, text)) = pair.split_once('=') else {
            wrong.add(OPTION, format!("missing bool value for {}", pair.trim()));
            continue;
        };
        let (name, text) = (name.trim(), text.trim());
        match truth(text) {
            Some(open) => read.push((name.to_owned(), open)),
            None => {
                wrong.add(OPTION, format!("invalid value of {name}={text}: it is neither true nor false"))
            }
        }
    }
    read
}

/// Says which of them change nothing, and which will go.
fn warn(asked: &[(String, bool)]) {
    let find = |name: &str| gates::all().find(|gate| gate.name == name);
    for (name, open) in asked {
        let Some(gate) = find(name).filter(|gate| !gate.locked) else { continue };
        if gate.stage == "ga" {
            tracing::warn!("{OPTION}: {name}={open}: the gate is of a finished feature and will be removed");
        }
        if gate.open != *open && gates::behind(name).is_none() {
            match gates::elsewhere(name) {
                Some(whose) => {
                    tracing::warn!("{OPTION}: {name}={open} has no effect here: it is about {whose}")
                }
                // that it is finished was said
                None if gate.stage == "ga" => {}
                None => tracing::warn!(
                    "{OPTION}: {name}={open} has no effect: nothing stands behind this gate yet"
                ),
            }
        }
    }
}

impl Decided {
    pub fn is_open(&self, gate: &Gate) -> bool {
        self.0.get(gate.name).copied().unwrap_or(gate.open)
    }

    /// Whether the log may be anything but plain text.
    pub fn shapes_log(&self) -> bool {
        gates::all().any(|gate| gate.name == gates::LOGS && self.is_open(&gate))
    }

    /// The gates of kinds and fields that are open although nobody would have opened them, and those that are closed
    /// although nobody would have closed them.
    pub fn of_kinds(&self) -> (Vec<String>, Vec<String>) {
        let differ =
            gates::all().filter(|gate| gates::guards_kinds(gate.name) && self.is_open(gate) != gate.open);
        let (opened, closed): (Vec<_>, Vec<_>) = differ.partition(|gate| !gate.open);
        let names = |gates: Vec<Gate>| gates.into_iter().map(|gate| gate.name.to_owned()).collect();
        (names(opened), names(closed))
    }

    /// What loops are told.
    pub fn of_loops(&self) -> controllers::gates::Gates {
        let mut gates = controllers::gates::Gates::default();
        for gate in gates::all() {
            if let Some((_, _, field)) = BEHIND_LOOPS.iter().find(|(name, ..)| *name == gate.name) {
                *field(&mut gates) = self.is_open(&gate);
            }
        }
        gates
    }

    /// What the server is told.
    pub fn of_server(&self) -> Gates {
        let mut gates = Gates::default();
        for gate in gates::all() {
            let open = self.is_open(&gate);
            if let Some((_, _, field)) = BEHIND.iter().find(|(name, ..)| *name == gate.name) {
                *field(&mut gates) = open;
            }
            gates.shown.push(Shown { name: gate.name, stage: gate.stage, open });
        }
        gates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Result<Decided, String> {
        let mut wrong = ConfigErrors::default();
        let features = Features { feature_gates: values.iter().map(|it| (*it).to_owned()).collect() };
        let decided = features.read(&mut wrong);
        wrong.check().map(|()| decided).map_err(|why| why.to_string())
    }

    /// Of the gates before kinds, which few are enough for.
    fn opened(values: &[&str]) -> Vec<String> {
        let (all, _) = read(values).unwrap().of_kinds();
        all.into_iter().filter(|name| name == "APISelfSubjectReview").collect()
    }

    #[test]
    fn gates_open_what_stands_behind_them() {
        let review = vec!["APISelfSubjectReview".to_owned()];
        assert_eq!(opened(&["APISelfSubjectReview=true"]), review);
        assert_eq!(opened(&["AllAlpha=true"]), review);
        assert_eq!(opened(&["APISelfSubjectReview=false,AllAlpha=true"]), [""; 0]);
        assert_eq!(opened(&["AppArmor=false,CPUManager=true, AllBeta=f"]), [""; 0]);
        let gates = read(&["OpenAPIV3=false,RemainingItemCount=0"]).unwrap().of_server();
        assert!(!gates.openapi_v3 && !gates.remaining && gates.chunks && gates.turns);
        let (_, closed) = read(&["CronJobTimeZone=false,JobPodFailurePolicy=true"]).unwrap().of_kinds();
        assert_eq!(closed, ["CronJobTimeZone"]);
        assert!(!read(&["AllBeta=false,OpenAPIV3=true"]).unwrap().of_server().chunks);
        assert_eq!(Gates { shown: Vec::new(), ..read(&[]).unwrap().of_server() }, Gates::default());
    }

    #[test]
    fn what_is_decided_first_is_not_decided_again_by_a_group() {
        let named = ["APISelfSubjectReview=false", "AllAlpha=true"];
        assert_eq!(opened(&named), [""; 0]);
        // a group counts for those that are undecided, so the second time there are none
        assert_eq!(opened(&["AllAlpha=true", "AllAlpha=false"]), ["APISelfSubjectReview"]);
        assert_eq!(opened(&["AllAlpha=true,AllAlpha=false"]), [""; 0]);
        assert_eq!(opened(&["AllAlpha=true", "APISelfSubjectReview=false"]), [""; 0]);
    }

    #[test]
    fn every_mistake_is_told() {
        let told = read(&["Nope=true,CPUManager=false,AppArmor,AllAlpha=x"]).err().unwrap();
        for part in [
            "unrecognized feature gate: Nope",
            "cannot set feature gate CPUManager to false, feature is locked to true",
            "missing bool value for AppArmor",
            "invalid value of AllAlpha=x",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(gates::all().count(), 147);
    }

    #[test]
    fn what_stands_behind_gates_are_gates() {
        let known = |name: &str| gates::all().find(|gate| gate.name == name);
        let names = BEHIND.iter().map(|it| it.0).chain(BEHIND_LOOPS.iter().map(|it| it.0));
        for name in names {
            assert!(known(name).is_some(), "{name}");
            assert_ne!(gates::behind(name), Some(""), "{name}");
        }
        for gate in kinds::gates::OF_KINDS {
            let (open, locked) = known(gate.name).map(|it| (it.open, it.locked)).unwrap();
            assert_eq!((open, locked), (gate.open, false), "{}", gate.name);
        }
    }

    #[test]
    fn loops_are_told_of_their_gates() {
        assert_eq!(read(&[]).unwrap().of_loops(), controllers::gates::Gates::default());
        let gates = read(&["PodDeletionCost=false,TopologyAwareHints=false"]).unwrap().of_loops();
        assert!(!gates.deletion_cost && !gates.hints && gates.ready_pods);
    }
}
